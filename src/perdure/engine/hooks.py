"""What users hang on an app: subscribers, interceptors, carriers. It outlives the engines that the app opens."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.engine.around import Around
from perdure.engine.carriers import Carriers
from perdure.engine.events import Events


@dataclass(frozen=True, slots=True)
class Hooks:
    """Of one app."""

    events: Events = field(default_factory=Events)
    around: Around = field(default_factory=Around)
    carriers: Carriers = field(default_factory=Carriers)

    def for_client(self) -> Hooks:
        """Of an app's client: it starts runs as the app does, and runs nothing."""
        return Hooks(carriers=self.carriers)
