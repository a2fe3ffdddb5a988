"""The objects that exist, kept from the events of kubecdc whatever copies, late records, gaps and snapshots come."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

REMEMBER = 100_000  # ended objects, and ids of stream events: what a late copy is told by


@dataclass
class Row:
    resource: str  # "deployments.apps", "pods"
    namespace: str
    name: str
    version: str  # the highest seen: history and sequence
    position: int  # of the last event that changed it, or read it for a snapshot under way
    object: dict | None
    part: str = ""  # selectors of the scope that it was last heard of in


class Table:
    def __init__(self):
        self.rows = {}  # by (source, uid): the objects that exist
        self.gone = {}  # by (source, uid): those that do not any more
        self.reading = {}  # by (source, scope): the snapshot being read, and the position of its start
        self.heard = {}  # (source, id) of stream events
        self.position = 0

    def apply(self, event):
        """Takes the next event; returns what it changed: [(what, row)]."""
        self.position += 1
        if event.get_extension("deadletterreason"):
            return []  # Among the dead letters, and no part of the stream: a gap says so.
        return self._object(event) if event.get_extension("op") else self._stream(event)

    def _object(self, event):
        op, data = event.get_extension("op"), event.get_data()
        resource, group = event.get_extension("resource"), event.get_extension("apiversion").rpartition("/")[0]
        resource += "." + group if group else ""
        version = version_of(event)
        part = selectors(event.get_extension("scope") or "")
        row = Row(resource, event.get_extension("namespace") or "", event.get_extension("name"), version, 0, data.get("after"), part)

        key = (event.get_source(), event.get_extension("uid"))
        known = self.rows.get(key)
        shown = op != "r" or any(k[0] == key[0] and id == data["snapshot"] for k, (id, _) in self.reading.items())
        row.position = self.position if shown else known.position if known else 0
        if known and op == "r":
            known.position = row.position  # It exists, even where that is no news.

        if known and op == "l" and part and known.part and part != known.part:
            return []  # It has passed to another scope, whose word came first.
        last = known or self.gone.get(key)
        if last and version and version <= last.version:
            # A copy, or late. But a snapshot may read again what had left the selection, as it was then, and another scope may
            # have it since.
            again = op == "r" and shown or op == "e" and part != last.part
            if known or not again or version < last.version:
                return []
        if op in ("d", "l"):
            self.rows.pop(key, None)
            remember(self.gone, key, row)
        elif op in ("c", "u", "r", "e"):
            self.rows[key] = row
            self.gone.pop(key, None)
        else:
            return []  # A later version's.
        return [(event.get_type().rpartition(".")[2], row)]

    def _stream(self, event):
        kind, data, source = event.get_type().removeprefix("dev.kubecdc."), event.get_data(), event.get_source()
        if kind not in ("snapshot.started", "snapshot.completed", "gap") or (source, event.get_id()) in self.heard:
            return []
        remember(self.heard, (source, event.get_id()), None)
        if kind == "gap":
            return self._letter(source, data["deadLetter"]) if "deadLetter" in data else []
        scope = (source, event.get_extension("scope"))
        if kind == "snapshot.started":
            self.reading[scope] = (data["snapshot"], self.position)
        elif kind == "snapshot.completed" and self.reading.get(scope, (None,))[0] == data["snapshot"]:
            return self._sweep(scope, self.reading.pop(scope)[1])
        return []

    def _letter(self, source, id):
        """The event of that id is among the dead letters: the object exists, unless the event is its deletion."""
        _, uid, version = id.split("/")[:3]
        row = self.rows.get((source, uid))
        if row and version == "d":
            remember(self.gone, (source, uid), self.rows.pop((source, uid)))
            return [("deleted", row)]
        if row:
            row.position = self.position
        return []

    def _sweep(self, scope, started):
        """What was neither read nor changed since the snapshot started does not exist."""
        swept = [key for key, row in self.rows.items() if row.position < started and covers(scope, key, row)]
        for key in swept:
            remember(self.gone, key, self.rows.pop(key))
        return [("swept", self.gone[key]) for key in swept]


def version_of(event):
    """The sequence, behind the number of restores of etcd that the id ends in: sequences begin again below after one."""
    history = re.search(r"/h([0-9]+)$", event.get_id())
    sequence = event.get_extension("sequence")
    return f"{int(history[1]) if history else 0:010} {sequence}" if sequence else ""


def covers(scope, key, row):
    """Whether a scope ("pods", "pods/shop", "configmaps/*,!kube-*?labelSelector=a=b") covers a row."""
    part = selectors(scope[1])
    resource, _, patterns = scope[1].removesuffix(part).partition("/")
    if scope[0] != key[0] or resource != row.resource or (part and row.part and part != row.part):
        return False
    if not patterns or not row.namespace:
        return True
    matching = [p for p in patterns.split(",") if fnmatchcase(row.namespace, p.removeprefix("!"))]
    return bool(matching) and not any(p.startswith("!") for p in matching)


def selectors(scope):
    """The selectors in the name of a scope: "?labelSelector=a=b", "?any=shop?labelSelector=a=b|team-*"."""
    found = re.search(r"\?(?:labelSelector|fieldSelector|any)=.*", scope)
    return found[0] if found else ""


def remember(known, key, value):
    known[key] = value
    if len(known) > REMEMBER:
        del known[next(iter(known))]  # The oldest.
