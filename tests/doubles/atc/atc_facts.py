"""What atc of a CANN version takes, for the stand-in alone: written from published flags, apart from the product."""

from __future__ import annotations

import re

# Flags that every version read has (graphengine r1.5, hicann/ge): name → allowed values, None for any text.
EVERYWHERE: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(
        [
            "model",
            "output",
            "weight",
            "om",
            "json",
            "out_nodes",
            "input_shape",
            "input_shape_range",
            "dynamic_batch_size",
            "dynamic_image_size",
            "dynamic_dims",
            "insert_op_conf",
            "cal_conf",
            "op_name_map",
            "target",
            "soc_version",
            "keep_dtype",
            "modify_mixlist",
            "input_fp16_nodes",
            "op_precision_mode",
            "is_output_adjust_hw_layout",
            "is_input_adjust_hw_layout",
            "optypelist_for_implmode",
            "singleop",
            "auto_tune_mode",
            "aicore_num",
            "fusion_switch_file",
            "compress_weight_conf",
            "check_report",
            "debug_dir",
            "enable_scope_fusion_passes",
            "op_compiler_cache_dir",
            "mdl_bank_path",
            "op_bank_path",
            "device_id",
        ]
    ),
    "framework": ("0", "1", "3", "5"),
    "mode": ("0", "1", "3", "5", "6", "30"),
    "output_type": ("FP32", "FP16", "UINT8"),
    "input_format": ("NCHW", "ND", "NCDHW"),
    "op_select_implmode": (
        "high_precision",
        "high_performance",
        "high_precision_for_all",
        "high_performance_for_all",
    ),
    "disable_reuse_memory": ("0", "1"),
    "core_type": ("AiCore", "VectorCore"),
    "buffer_optimize": ("l1_optimize", "l2_optimize", "off_optimize"),
    "save_original_model": ("true", "false"),
    "enable_small_channel": ("0", "1"),
    "enable_compress_weight": ("true", "false"),
    "enable_single_stream": ("true", "false"),
    "log": ("debug", "info", "warning", "error", "null"),
    "dump_mode": ("0", "1"),
    "op_debug_level": ("0", "1", "2", "3", "4"),
    "op_compiler_cache_mode": ("enable", "disable", "force"),
    "display_model_info": ("0", "1"),
}
OLD_MODES = ("force_fp16", "allow_mix_precision", "allow_fp32_to_fp16", "must_keep_origin_dtype")
V1_MODES = (*OLD_MODES, "force_fp32", "cube_fp16in_fp32out", "allow_mix_precision_fp16")
BF16_MODES = ("allow_mix_precision_bf16", "allow_fp32_to_bf16")
V2_MODES = ("fp16", "origin", "cube_fp16in_fp32out", "mixed_float16")
SINCE: list[tuple[tuple[int, int], dict[str, tuple[str, ...] | None]]] = [
    ((5, 0), {"precision_mode": OLD_MODES}),
    ((6, 0), {"precision_mode": (*OLD_MODES, "force_fp32")}),
    ((6, 2), {"precision_mode": V1_MODES, "precision_mode_v2": V2_MODES}),
    (
        (6, 3),
        {
            "precision_mode": (*V1_MODES, *BF16_MODES),
            "precision_mode_v2": (*V2_MODES, "mixed_bfloat16"),
            "host_env_os": ("linux", "minios"),
            "host_env_cpu": ("x86_64", "aarch64", "arm64", "arm"),
            "virtual_type": ("0", "1"),
            "compression_optimize_conf": None,
        },
    ),
    (
        (8, 0),
        {
            "external_weight": ("0", "1"),
            "customize_dtypes": None,
            "deterministic": ("0", "1"),
            "sparsity": ("0", "1"),
            "is_weight_clip": ("0", "1"),
            "allow_hf32": ("true", "false"),
            "op_debug_config": None,
            "shape_generalized_build_mode": ("shape_generalized", "shape_precise"),
        },
    ),
    (
        (8, 5),
        {
            "output_type": ("FP32", "FP16", "UINT8", "INT8", "HIF8", "FP8E5M2", "FP8E4M3FN"),
            "deterministic_level": ("0", "1", "2"),
            "oo_level": ("O1", "O3"),
            "ac_parallel_enable": ("0", "1"),
            "atomic_clean_policy": ("0", "1"),
            "quant_dumpable": ("0", "1"),
            "status_check": ("0", "1"),
            "tiling_schedule_optimize": ("0", "1"),
            **dict.fromkeys(
                [
                    "input_hint_shape",
                    "oo_constant_folding",
                    "oo_dead_code_elimination",
                    "topo_sorting_mode",
                    "export_compile_stat",
                    "cluster_config",
                ]
            ),
        },
    ),
    (
        (9, 0),
        {
            "external_weight": ("0", "1", "2"),
            "enable_attr_compression": ("true", "false"),
            "precision_mode_v2": (*V2_MODES, "mixed_bfloat16", "mixed_hif8", "cube_hif8"),
        },
    ),
    (
        (9, 1),
        {
            "mode": ("0", "1", "3", "5", "6", "7", "30"),
            "hccl_sub_comm_config": None,
            "output_type": ("FP32", "FP16", "UINT8", "INT8", "HIF8", "FP8E5M2", "FP8E4M3FN", "HIF4"),
        },
    ),
    (
        (9, 2),
        {
            "deterministic_level": ("0", "1", "2", "3"),
            "jit_compile": ("0", "1", "2"),
            **dict.fromkeys(
                [
                    "optimization_switch",
                    "static_model_ops_lower_limit",
                    "h2d_overlapped_with_compute",
                    "raw_ge_options",
                    "build_config",
                    "multi_stream_parallel_mode",
                ]
            ),
        },
    ),
]
FAMILIES: dict[str, tuple[str, ...]] = {
    "Ascend310": ("Ascend310",),
    "Ascend310B": ("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4"),
    "Ascend310P": ("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"),
    "Ascend910": ("Ascend910A", "Ascend910B", "Ascend910PremiumA", "Ascend910ProA", "Ascend910ProB"),
    "Ascend910B": (
        "Ascend910B1",
        "Ascend910B2",
        "Ascend910B2C",
        "Ascend910B3",
        "Ascend910B4",
        "Ascend910B4-1",
    ),
    "Ascend910_93": (*(f"Ascend910_{number}" for number in (9362, 9363, 9372, 9381, 9382, 9391, 9392)),),
    "Ascend950": tuple(
        f"Ascend950{part}"
        for part in [
            "DT_950x",
            "DT_950y",
            "DT_9571",
            "DT_9572",
            "DT_9573",
            "DT_9574",
            "DT_9575",
            "DT_9576",
            "DT_9577",
            "DT_9578",
            "DT_9581",
            "DT_9581x",
            "DT_9582",
            "DT_9582x",
            "DT_9583",
            "DT_9584",
            "DT_9585",
            "DT_9586",
            "DT_9587",
            "DT_9588",
            "DT_9591",
            "DT_9592",
            "DT_9595",
            "DT_9596",
            "DT_95A1",
            "DT_95A2",
            "PR_950z",
            "PR_9579",
            "PR_957b",
            "PR_957bx",
            "PR_957c",
            "PR_957d",
            "PR_9589",
            "PR_958b",
            "PR_9599",
        ]
    ),
}
OLD_ONLY = [
    "Ascend310",
    "Ascend910_95",
    "Ascend910_5591",
    "AS31XM1X",
    "Hi3796CV300CS",
    "Hi3796CV300ES",
    "SD3403",
    "Ascend610",
    "Ascend610Lite",
    "BS9SX1AA",
    "BS9SX1AB",
    "BS9SX1AC",
    "BS9SX2AA",
    "BS9SX2AB",
    "MC61AM21AA",
    "MC61AM21AB",
]
"""In the list of CANN 8.1.RC1 and not in that of 2026."""
NEW_ONLY = [
    "Ascend910_9363",
    "Ascend350_354f",
    "Ascend350_355e",
    "Kirin9030",
    "KirinDev0000",
    "KirinDev0001",
    "KirinDev0002",
    "KirinDev0003",
    "KirinX90",
]
"""In the list of 2026 and not in that of CANN 8.1.RC1; so are all of the 950."""
REFUSED_OPS = frozenset({"Det", "Loop", "Scan", "Unique", "QuantizeLinear", "DynamicQuantizeLinear", "SequenceMap"})
BF16_FAMILIES = frozenset({"Ascend910_95", "Ascend910B", "Ascend910_93", "Ascend950", "Ascend310B"})
STEPPED = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")


def edition(version: str) -> tuple[int, int]:
    """``8.1.RC1`` → (8, 1)."""
    numbers = re.findall(r"\d+", version)
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def flags_of(version: str) -> dict[str, tuple[str, ...] | None]:
    """The flags of a version and their values."""
    flags = dict(EVERYWHERE)
    for since, more in SINCE:
        if edition(version) >= since:
            flags.update(more)
    return flags


def family_of(soc: str, version: str) -> str:
    """The family of a SoC that this version knows; empty: it does not know it."""
    family = next((name for name, members in FAMILIES.items() if soc in members), "")
    if not family and soc in (*OLD_ONLY, *NEW_ONLY, "Ascend031"):
        family = soc.partition("_")[0] if soc != "Ascend910_95" else soc
    late = (family == "Ascend950" or soc in NEW_ONLY) and edition(version) < (8, 2)
    early = soc in OLD_ONLY and edition(version) > (8, 4)
    return "" if late or early else family
