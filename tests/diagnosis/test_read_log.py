"""What is made of whole logs: the first cause, names mapped to the graph's nodes, logs that nothing is known of."""

import pytest

from convert.diagnosis import read_log
from convert.diagnosis.lookup import find_vendor, kind_of_word, near, rows_of_code
from convert.diagnosis.names import real_names
from convert.diagnosis.tables import KINDS

ATC = """ATC start working now, please wait for a moment.
ATC run failed, Please check the detail log, Try 'atc --help' for more information
E19010: [PID: 4711] 2023-01-02-03:04:05.678 No parser is registered for Op [Resize_12, optype [ai.onnx::13::Resize]].
        Solution: Check the version and installation path of the OPP package.
        TraceBack (most recent call last):
        No parser is registered for Op [GridSample_7, optype [ai.onnx::16::GridSample]]
        ATC model parse ret fail.[FUNC:ParseGraph][FILE:omg.cc][LINE:812]
"""
KERNEL = """ATC run failed, Please check the detail log
E40021: Failed to compile Op [Conv_1]. (oppath: [/x/conv.py], optype: [Conv2D])
        Solution: See the host log for details.
        TraceBack (most recent call last):
Traceback (most recent call last):
  File "conv.py", line 1, in <module>
ModuleNotFoundError: No module named 'decorator'
E19999: Inner Error!
"""
TRTEXEC = """&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=model/model.onnx
[I] Start parsing network model.
[W] CUDA lazy loading is not enabled. Enabling it can significantly reduce device memory usage
[W] No importer registered for op: GridSample3D. Attempting to import as plugin.
[E] [TRT] ModelImporter.cpp:771: While parsing node number 3 [GridSample3D -> "y"]:
[E] Plugin not found, are the plugin name, version, and namespace correct?
[E] Failed to parse onnx file
[E] Engine set up failed
&&&& FAILED TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=model/model.onnx
"""


def test_the_first_coded_line_is_the_cause_and_the_trace_adds_its_nodes():
    found = read_log("atc", ATC)
    assert found.code == "CNV-7261"
    assert found.nodes == ("Resize_12", "GridSample_7")
    assert found.ops == ("Resize", "GridSample")
    assert "operators Resize, GridSample" in found.cause
    assert "--opset" in found.hint


def test_a_missing_module_is_the_cause_and_not_the_kernel_that_failed_for_it():
    found = read_log("atc", KERNEL)
    assert found.code == "CNV-7266"
    assert "module decorator" in found.cause
    assert found.nodes == ()


def test_the_parsers_reason_counts_and_not_the_summaries_after_it():
    found = read_log("tensorrt", TRTEXEC)
    assert found.code == "CNV-7261"
    assert "staticPlugins" in found.hint


def test_the_same_error_is_known_in_its_wording_before_and_since_cann_8_5():
    old = read_log("atc", "E20001: Failed to compile Op [Slice_9]. (optype: [StridedSliceD])")
    new = read_log("atc", "E20001: Operator Slice_9 compilation failed. Optype is StridedSliceD.")
    assert old == new
    assert old.nodes == ("Slice_9",)


def test_a_known_code_in_a_wording_that_is_not_known_still_tells_what_to_do():
    found = read_log("atc", "E10016: something new is said here of [image]")
    assert found.known
    assert "something new is said here" in found.cause


def test_a_log_that_nothing_is_known_of_gives_its_last_meaningful_lines():
    found = read_log("migraphx", "reading\nerror: frob 17 has no bar\n\n   \n")
    assert not found.known
    assert found.code == "CNV-7002"
    assert found.cause == "error: frob 17 has no bar"


@pytest.mark.parametrize("log", ["", "\n\n", "\0\0"])
def test_an_empty_log_says_that_the_tool_said_nothing(log: str):
    assert read_log("atc", log).cause == "the tool said nothing"


def test_nothing_that_a_terminal_acts_on_passes_through():
    found = read_log("atc", "E10007: [--framework] is required \x1b]0;owned\x07\x1b[31mred\x9b2J")
    assert "\x1b" not in found.cause and "\x07" not in found.cause and "\x9b" not in found.cause


def test_a_vendor_without_tables_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="frob"):
        read_log("frob", "x")


@pytest.mark.parametrize(
    ("mangled", "real"),
    [
        ("/conv1/Conv", ("/conv1/Conv",)),
        ("_conv1_Conv", ("/conv1/Conv",)),
        ("/conv1/Conv + /relu/Relu", ("/conv1/Conv", "/relu/Relu")),
        ("PartitionedCall_/conv1/Conv_2", ("/conv1/Conv",)),
        ("{ForeignNode[/conv1/Conv.../relu/Relu]}", ("/conv1/Conv", "/relu/Relu")),
        ("trans_Cast_0", ()),
        ("/layer1/conv1/Conv", ("/layer1/conv1/Conv",)),
        ("(Unnamed Layer* 5) [Convolution]", ()),
    ],
)
def test_names_that_a_compiler_changed_lead_back_to_nodes(mangled: str, real: tuple[str, ...]):
    nodes = {"/conv1/Conv", "/relu/Relu", "/layer1/conv1/Conv", "x"}
    assert real_names([mangled], nodes) == real


def test_nodes_are_the_graphs_own_where_they_are_given():
    found = read_log("atc", ATC.replace("Resize_12", "_up_Resize"), ["/up/Resize", "GridSample_7"])
    assert found.nodes == ("/up/Resize", "GridSample_7")


@pytest.mark.parametrize(
    ("log", "vendor"),
    [
        (ATC, "atc"),
        (TRTEXEC, "tensorrt"),
        ("E19010: No parser is registered for Op [a, optype [ai.onnx::1::B]]", "atc"),
        ("terminate called\n  what():  /a/b.cpp:1: f: Unknown operator: Det", "migraphx"),
        ("ModuleNotFoundError: No module named 'magicmind'", "magicmind"),
        ("ixrtexec: error: unrecognized arguments: --x", "ixrt"),
        ("nothing at all", ""),
    ],
)
def test_the_vendor_is_found_out_from_the_log(log: str, vendor: str):
    assert find_vendor(log) == vendor


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("OP_NOT_SUPPORTED", "op"),
        ("op-not-supported", "op"),
        ("ACCURACY_OVERFLOW", "quant"),
        ("SHAPE_INVALID", "shape"),
        ("SOC_MISMATCH", "soc"),
        ("frobnicate", ""),
    ],
)
def test_words_that_people_search_for_stand_for_a_kind(word: str, kind: str):
    assert kind_of_word(word) == kind


def test_no_word_stands_for_two_kinds():
    words = [word for kind in KINDS.values() for word in kind.words]
    assert len(words) == len(set(words))
    assert len({kind.code for kind in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize(
    ("code", "rows"),
    [("E19010", 1), ("ez3003", 1), ("E60123", 1), ("507008", 1), ("E99999", 0), ("", 0), ("E10001", 2)],
)
def test_vendors_codes_are_looked_up_ranges_included(code: str, rows: int):
    assert len(rows_of_code(code)) == rows


def test_what_is_not_known_gets_the_nearest_words_and_codes():
    assert "OP_NOT_SUPPORTED" in near("op not suported")
    assert "E19010" in near("E1901O")
