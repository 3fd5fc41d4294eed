"""Instances and their bags: side by side, wherever the instances are, and for one's own loop."""

from bagwise.data.bag_data import BagData, SharedRows
from bagwise.data.batch_sampler import BagBatchSampler
from bagwise.data.inputs import Inputs
from bagwise.data.loading import BagDataset, collate_bags

__all__ = ["BagBatchSampler", "BagData", "BagDataset", "Inputs", "SharedRows", "collate_bags"]
