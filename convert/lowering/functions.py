"""Functions: ONNX's own definitions of its composite operators put in their place, and a model's local functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, inliner

from convert.lowering import schemas, table
from convert.lowering.facts import Scope
from convert.lowering.site import Names, Refuse, Site

PREVIEW = "ai.onnx.preview"


def must_expand(node: NodeProto, version: int, target: int) -> bool:
    """Whether a node is an operator that is gone at the target, has no rule, and has a definition by ONNX."""
    if target > version:
        return False
    if node.domain == PREVIEW:
        found = schemas.schema(node.op_type, 1, PREVIEW)
        return found is not None and _has_body(found) and version <= 26
    step = (node.op_type, version)
    if not schemas.main_domain(node.domain) or (step in table.DOWN and step not in table.PREFERRED):
        return False
    if node.op_type == "Attention" and target >= 23:
        return version > 23 and _newer_attention(node, version)
    found = schemas.schema(node.op_type, version)
    return found is not None and schemas.schema(node.op_type, target) is None and _has_body(found)


def _newer_attention(node: NodeProto, version: int) -> bool:
    """Whether an Attention says something that the version before can't: windows since 25, lengths since 24."""
    windows = [a.i for a in node.attribute if a.name in ("left_window_size", "right_window_size")]
    if version == 25:
        return any(size != -1 for size in windows)
    return version == 24 and len(node.input) > 6 and bool(node.input[6])


def _has_body(found: Any) -> bool:
    return bool(found.has_function or found.has_context_dependent_function)


def expand(node: NodeProto, scope: Scope, names: Names, version: int, target: int) -> list[NodeProto] | None:
    """The nodes of an operator's definition, or None where it stays or a rule takes it."""
    if not must_expand(node, version, target):
        return None
    prefers_rule = table.PREFERRED.get((node.op_type, version))
    if prefers_rule is not None and prefers_rule(Site(node, scope, names, target, version)):
        return None
    return definition(node, scope, names, version)


def definition(node: NodeProto, scope: Scope, names: Names, version: int) -> list[NodeProto]:
    """The nodes of an operator's definition by ONNX at an opset; refuses where there is none."""
    found = schemas.schema(node.op_type, version if not node.domain else 1, node.domain)
    if found is None or not _has_body(found):
        raise Refuse(f"ONNX has no definition of {node.op_type} at opset {version}")
    body = _body(node, found, scope, version)
    _require_same_versions(body, node, version)
    attributes = {a.name: a for a in node.attribute}
    for name, declared in found.attributes.items():
        if name not in attributes and declared.default_value.type:
            attributes[name] = declared.default_value
    return _Inlining(node, body, names, attributes).nodes()


def _body(node: NodeProto, found: Any, scope: Scope, version: int) -> FunctionProto:
    body = FunctionProto()
    plain = [v for v in found.function_opset_versions if v <= version or node.domain]
    if plain:
        body.ParseFromString(found.get_function_with_opset_version(max(plain)))
        return body
    versions = [v for v in found.context_dependent_function_opset_versions if v <= version or node.domain]
    types = []
    for name in node.input:
        known = scope.type_of(name) if name else TypeProto()
        if known is None:
            raise Refuse(f"the type of '{name}' is not known")
        types.append(known.SerializeToString())
    text = found.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
    body.ParseFromString(text)
    if not body.node:
        raise Refuse("ONNX's definition of it does not cover these types and attributes")
    return body


def _require_same_versions(body: FunctionProto, node: NodeProto, version: int) -> None:
    """The body must mean the same at the model's opset as at its own."""
    own = next((e.version for e in body.opset_import if schemas.main_domain(e.domain)), version)
    for inner in body.node:
        here, there = schemas.since(inner.op_type, version), schemas.since(inner.op_type, own)
        same = table.SAME.get(inner.op_type, ())
        between = range(min(own, version) + 1, max(own, version) + 1)
        changed = [v for v in between if schemas.since(inner.op_type, v) == v and v not in same]
        if here != there and (own > version or changed):
            raise Refuse(f"ONNX defines {node.op_type} by {inner.op_type} of opset {own}, not of {version}")


class _Inlining:
    """One function body being written in the place of a node."""

    def __init__(
        self, node: NodeProto, body: FunctionProto, names: Names, attributes: dict[str, AttributeProto]
    ) -> None:
        self.node, self.body, self.names, self.attributes = node, body, names, attributes
        self.map = {name: node.input[i] if i < len(node.input) else "" for i, name in enumerate(body.input)}
        for i, name in enumerate(body.output):
            if i < len(node.output) and node.output[i]:
                self.map[name] = node.output[i]
        self.stem = node.name or node.output[0]

    def nodes(self) -> list[NodeProto]:
        return [self._copy(inner) for inner in self.body.node]

    def _name(self, name: str) -> str:
        if name and name not in self.map:
            self.map[name] = self.names.fresh(f"{self.stem}/{name}")
        return self.map.get(name, "")

    def _copy(self, inner: NodeProto) -> NodeProto:
        copy = NodeProto()
        copy.op_type, copy.domain = inner.op_type, inner.domain
        copy.name = self.names.fresh(f"{self.stem}/{inner.op_type}")
        copy.input.extend(self._name(name) for name in inner.input)
        copy.output.extend(self._name(name) for name in inner.output)
        copy.doc_string = self.node.doc_string
        copy.metadata_props.extend(self.node.metadata_props)
        for attribute in inner.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in self.attributes:
                    copy.attribute.add().CopyFrom(self.attributes[attribute.ref_attr_name])
                    copy.attribute[-1].name = attribute.name
                continue
            copy.attribute.add().CopyFrom(attribute)
            if attribute.type == AttributeProto.GRAPH:
                self._rename(copy.attribute[-1].g)
        return copy

    def _rename(self, graph: GraphProto) -> None:
        for info in (*graph.input, *graph.output):
            info.name = self._name(info.name)
        for tensor in graph.initializer:
            tensor.name = self._name(tensor.name)
        nodes = [self._copy(inner) for inner in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
        del graph.value_info[:]


def inlined(model: ModelProto, functions: Sequence[FunctionProto]) -> ModelProto:
    """The model with calls of these local functions replaced by what they do."""
    keys = [(f.domain, f.name) for f in functions]
    if len(keys) == len(model.functions):
        result: ModelProto = inliner.inline_local_functions(model, convert_version=False)
    else:
        result = inliner.inline_selected_functions(model, keys, exclude=False)
    return result


def drop_preview_import(model: ModelProto) -> None:
    """Take out the import of ONNX's preview operators once none is left; older runtimes do not know it."""
    used = any(node.domain == PREVIEW for node in model.graph.node) or bool(model.functions)
    imports = [(entry.domain, entry.version) for entry in model.opset_import]
    if not used and any(domain == PREVIEW for domain, _ in imports):
        del model.opset_import[:]
        for domain, version in imports:
            if domain != PREVIEW:
                model.opset_import.add(domain=domain, version=version)
