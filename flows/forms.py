"""What the Prefect form of `migrate` offers: the names of deployments/*.toml and of the zoo as choices, groups with units and help.

The choices are read when the flow is deployed: after adding a model or a target, start `crossgrade up` again (or deploy again).
"""

from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

import model_zoo
from tasks import catalog
from tasks.facts import Fact


def choice(title: str, names: list[str]) -> Any:
    """An enumeration whose members are its values: a drop-down in the form."""
    return Enum(title, {name: name for name in names}, type=str, module=__name__)


if TYPE_CHECKING:  # the choices depend on files
    from typing import TypeAlias

    Model: TypeAlias = Enum
    TargetName: TypeAlias = Enum
    BackendName: TypeAlias = Enum
    RecipeName: TypeAlias = Enum
    PolicyName: TypeAlias = Enum
else:
    Model = choice("Model", model_zoo.names())
    TargetName = choice("TargetName", list(catalog.targets()))
    BackendName = choice("BackendName", list(catalog.LOCAL_BACKENDS))
    RecipeName = choice("RecipeName", list(catalog.recipes()))
    PolicyName = choice("PolicyName", list(catalog.policies()))

Targets = Annotated[list[TargetName], Field(min_length=1)]
Backends = Annotated[list[BackendName], Field(min_length=1)]
Recipes = Annotated[list[RecipeName], Field(min_length=1)]
LOCAL = [TargetName(name) for name, target in catalog.targets().items() if not target.simulated]


class Baseline(Fact):
    """What serves the model today."""

    model_config = ConfigDict(title="Baseline")
    backend: BackendName = Field(BackendName("ort"), title="Runtime")
    recipe: RecipeName = Field(RecipeName("fp32"), title="Precision recipe")
    target: TargetName = Field(TargetName("cpu-2core"), title="Target")

    @property
    def cell(self) -> str:
        return f"{self.backend.value}/{self.recipe.value}@{self.target.value}"


class CostPolicy(Fact):
    """Changes to the policy's terms of money; what is left empty stays as the policy says."""

    model_config = ConfigDict(title="Cost policy")
    min_saving: float | None = Field(
        None, ge=0, lt=1, title="Least saving (share)", description="0.1: at least 10% of the cost per million must surely be saved"
    )
    utilisation: float | None = Field(
        None, gt=0, le=1, title="Mean utilisation (share)", description="load carried on average, as a share of what a device could carry"
    )
    migration_usd: float | None = Field(None, ge=0, title="One-off cost of the migration (USD)", description="engineering included")
    amortise_millions: float | None = Field(None, gt=0, title="Spread over (millions of inferences)")

    def changes(self) -> dict[str, Decimal]:
        """The fields that were filled in; decimal as they were written."""
        return {name: Decimal(str(value)) for name, value in self.model_dump(exclude_none=True).items()}
