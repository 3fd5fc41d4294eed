"""The bridge to PyTorch: posteriors of tensors, with gradients, also in compiled training steps.

`posterior` computes with arrays and does not import PyTorch. Where it is given a tensor, it imports
this room and hands over.
"""

from bagwise.autograd.device_bags import move, pin
from bagwise.autograd.device_engine import posterior_on_device
from bagwise.autograd.joint_operator import joint_of_tensor, tensor_like
from bagwise.autograd.operator import labeling_of_tensor, posterior_of_tensor
from bagwise.autograd.users_engines import posterior_by_users_engine

__all__ = [
    "joint_of_tensor",
    "labeling_of_tensor",
    "move",
    "pin",
    "posterior_by_users_engine",
    "posterior_of_tensor",
    "posterior_on_device",
    "tensor_like",
]
