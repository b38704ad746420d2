"""What ``compile.sh`` must know of each toolkit, in bash: is it here, which version, which card.

A toolkit without an entry gets none of these checks, and the script says so. The functions print one line or nothing;
they may use bash and what the toolkit itself brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """Bash of one toolkit: bodies of functions, each empty where nothing is known.

    ``setup``: files to source where ``argv[0]`` is not on PATH. ``version`` prints the toolkit's version, ``soc`` the
    exact SoC of this machine's card as the compiler names it, ``settle`` puts the output at its place where the
    compiler names it otherwise (``$output`` is the place), ``before`` does what comes before the compiler.
    ``packages``: what to look at, in words. ``here`` fails where the toolkit is missing although ``argv[0]``, a general
    program such as python3, is there.
    """

    setup: tuple[str, ...] = ()
    version: str = ""
    soc: str = ""
    settle: str = ""
    before: str = ""
    packages: str = ""
    here: str = ""


ASCEND_VERSION = r"""
  local home file key value info=ascend_toolkit_install.info base=/usr/local/Ascend
  for home in "${ASCEND_HOME_PATH:-}" "${ASCEND_TOOLKIT_HOME:-}" "$base/cann" "$base/ascend-toolkit/latest"; do
    [ -n "$home" ] || continue
    for file in "$home"/*-linux/$info "$home/$info" "$home/compiler/version.info"; do
      [ -r "$file" ] || continue
      while IFS='=' read -r key value || [ -n "$key" ]; do
        case $key in version|version_dir) printf '%s\n' "${value//[[:space:]]/}"; return ;; esac
      done < "$file"
    done
  done
"""
"""Keys of the version files: of an installed CANN 8.1.RC1 tree (ascend_toolkit_install.info, compiler/version.info)."""

ASCEND_SOC = r"""
  local line name found='' id gap='[[:space:]]*' word='[[:space:]]+([^[:space:]|]+)'
  local row="^\\|$gap([0-9]+)$word$gap\\|$gap(OK|Warning|Alarm|Critical|UNKNOWN)$gap\\|"
  found=$(python3 -c 'import acl; print(acl.get_soc_name() or "")' 2>/dev/null)
  found=${found##*$'\n'}
  case $found in Ascend*) printf '%s\n' "$found"; return ;; esac
  command -v npu-smi >/dev/null || return
  found=''
  while IFS= read -r line; do
    [[ $line =~ $row ]] || continue
    id=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
    case $name in
      Ascend910|Ascend950*) name=$(board_name "$id") ;;
      Ascend*) ;;
      *) name=Ascend$name ;;
    esac
    case " $found " in *" $name "*) ;; *) found="$found $name" ;; esac
  done < <(npu-smi info 2>/dev/null)
  printf '%s\n' "${found# }"
}

board_name() {
  local line chip='' npu=''
  while IFS= read -r line; do
    [[ $line =~ Chip\ Name[[:space:]]*:[[:space:]]*([^[:space:]]+) ]] && chip=${BASH_REMATCH[1]}
    [[ $line =~ NPU\ Name[[:space:]]*:[[:space:]]*([^[:space:]]+) ]] && npu=${BASH_REMATCH[1]}
  done < <(npu-smi info -t board -i "$1" -c 0 2>/dev/null)
  printf '%s\n' "$chip${npu:+_$npu}"
"""
"""npu-smi: rows of ``npu-smi info`` (24.1) and of ``-t board``; the Name is the SoC without ``Ascend`` up to A2, and
Chip Name + NPU Name from A3 on. ``acl.get_soc_name`` gives the exact string (hicann/runtime acl documentation)."""

ATC_OUTPUT = r"""
  local file stem=${output%.om}
  for file in "$stem"_*.om; do
    [ -s "$output" ] || [ ! -s "$file" ] || mv -- "$file" "$output"
  done
  for file in out/weight/*; do
    [ ! -f "$file" ] || mv -- "$file" "out/weight.${file##*/}"
  done
  [ ! -d out/weight ] || rmdir -- out/weight 2>/dev/null
"""
"""A model that is bound to a host's system is called ``NAME_linux_x86_64.om`` (hicann/ge, offline model manager)."""

AMCT_STEP = r"""
  local status
  [ -f calibrate.sh ] || return 0
  say "calibrating with AMCT: bash calibrate.sh"
  bash calibrate.sh >compile.log 2>&1 </dev/null
  status=$?
  [ "$status" -ne 6 ] || fail 6 "amct_onnx is not on PATH" "install the AMCT wheel of this CANN, then run this again"
  [ "$status" -eq 0 ] || fail 7 "AMCT ended with $status; its log is compile.log" "convert resume explains the log"
  mv -- compile.log calibrate.log
"""
"""int8: AMCT calibrates the graph before atc compiles it (``calibrate.sh``, a file of the plan)."""

ROCM_CARD = r"""
  local line found=''
  while IFS= read -r line; do
    [[ $line =~ ^[[:space:]]*Name:[[:space:]]*(gfx[0-9a-f]+)[[:space:]]*$ ]] || continue
    case " $found " in *" ${BASH_REMATCH[1]} "*) ;; *) found="$found ${BASH_REMATCH[1]}" ;; esac
  done < <(rocminfo 2>/dev/null)
  printf '%s\n' "${found# }"
"""

MIGRAPHX_VERSION = r"""
  local text
  text=$(migraphx-driver --version 2>&1)
  # From 2.16 on the line begins with a time, which has numbers of its own.
  [[ $text =~ Version:\ ([0-9]+\.[0-9]+(\.[0-9]+)?) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
"""

MAGICMIND_VERSION = r"""
  local python ask='
try:
    from importlib.metadata import version
except ImportError:
    from pkg_resources import get_distribution
    version = lambda name: get_distribution(name).version
print(version("magicmind"))'
  for python in "${CONVERT_MAGICMIND_PYTHON:-${argv[0]}}" python3; do
    "$python" -c "$ask" 2>/dev/null && return
  done
"""
"""As ``pip show magicmind`` tells it; the wheel is of Python 3.7, which has no importlib.metadata (magicmind_cloud)."""

TENSORRT_VERSION = r"""
  local text number
  text=$(trtexec 2>&1)
  [[ $text =~ TensorRT\ v([0-9]+) ]] || return
  number=${BASH_REMATCH[1]}
  if [ "${#number}" -gt 4 ]; then
    printf '%d.%d.%d\n' "$((10#$number / 10000))" "$((10#$number / 100 % 100))" "$((10#$number % 100))"
  else
    printf '%d.%d.%d\n' "$((10#$number / 1000))" "$((10#$number / 100 % 10))" "$((10#$number % 100))"
  fi
"""
"""``[TensorRT v8601]`` up to 9.x is 8.6.1, ``[TensorRT v100100]`` is 10.1.0 (NVIDIA/TensorRT, samples/trtexec)."""

NVIDIA_CARD = r"""
  local text
  text=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) && one_line <<<"$text"
"""
"""One name a line: ``NVIDIA A100-SXM4-80GB``; without a card the exit code is not 0 (nvidia-smi's documentation)."""

ILUVATAR_CARD = r"""
  local tool=ixsmi text
  command -v ixsmi >/dev/null || tool=/usr/local/corex/bin/ixsmi
  text=$("$tool" --query-gpu=name --format=csv,noheader 2>/dev/null) && one_line <<<"$text"
"""
"""As nvidia-smi: ``Iluvatar BI-V150`` (exporters in public repositories)."""

IXRT_VERSION = r"""
  local program first python=python3
  program=$(command -v -- "${argv[0]}")
  IFS= read -r first <"$program"
  [[ $first =~ ^#!\ *(/usr/bin/env\ +)?([^ ]*python[0-9.]*)\ *$ ]] && python=${BASH_REMATCH[2]}
  "${CONVERT_IXRT_PYTHON:-$python}" -c 'import ixrt; print(ixrt.__version__)' 2>/dev/null
"""
"""ixrtexec tells no version of its own; that of its package does (Deep-Spark/iluvatar-corex-ixrt ixrt/version.py). The
interpreter is the one that ixrtexec starts with."""

TPU_MLIR_VERSION = r"""
  local python
  python=$(dirname "$(command -v model_transform.py)")/python
  [ -x "$python" ] || python=python3
  "$python" -c 'from importlib.metadata import version; print(version("tpu-mlir"))' 2>/dev/null
"""
"""By the interpreter beside the compiler's own commands, as the plan takes it. Sophgo's containers have the commands
without a wheel: then no version is told."""


def _distribution(name: str) -> str:
    """The version of a Python package, as pip knows it, in the interpreter that the plan runs."""
    return f"""
  "${{argv[0]}}" -c 'from importlib.metadata import version; print(version("{name}"))' 2>/dev/null
"""


def _module(name: str, python: str = "${argv[0]}") -> str:
    """Whether a Python finds a module; it isn't imported, which can take long."""
    return f"""
  "{python}" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("{name}") is None)' 2>/dev/null
"""


TOOLKITS: Mapping[str, Toolkit] = MappingProxyType(
    {
        "atc": Toolkit(
            setup=(
                "/usr/local/Ascend/cann/set_env.sh",
                "/usr/local/Ascend/ascend-toolkit/set_env.sh",
                "$HOME/Ascend/cann/set_env.sh",
                "$HOME/Ascend/ascend-toolkit/set_env.sh",
            ),
            version=ASCEND_VERSION,
            soc=ASCEND_SOC,
            settle=ATC_OUTPUT,
            before=AMCT_STEP,
            packages="CANN toolkit, with the kernels (from 8.5 on: ops) package of the chip",
        ),
        "magicmind": Toolkit(
            version=MAGICMIND_VERSION,
            packages="Cambricon MagicMind SDK with its Python package (name its Python in CONVERT_MAGICMIND_PYTHON)",
            here=_module("magicmind", "${CONVERT_MAGICMIND_PYTHON:-${argv[0]}}"),
        ),
        "migraphx": Toolkit(
            setup=("/opt/dtk/env.sh",),
            version=MIGRAPHX_VERSION,
            soc=ROCM_CARD,
            packages="ROCm with MIGraphX, or Hygon DTK with its MIGraphX, and the card itself",
        ),
        "tensorrt": Toolkit(
            version=TENSORRT_VERSION, soc=NVIDIA_CARD, packages="TensorRT with trtexec, and the card itself"
        ),
        "ixrt": Toolkit(
            version=IXRT_VERSION,
            soc=ILUVATAR_CARD,
            packages="Iluvatar CoreX SDK with ixrtexec and its package ixrt, and the card itself",
        ),
        "openvino": Toolkit(
            version=_distribution("openvino"),
            packages="a python3 on PATH with the packages openvino and, for int8, nncf",
            here=_module("openvino"),
        ),
        "sophgo": Toolkit(
            version=TPU_MLIR_VERSION,
            packages="tpu-mlir, with its commands (model_transform.py, model_deploy.py) on PATH",
            here="\n  command -v model_transform.py >/dev/null && command -v model_deploy.py >/dev/null\n",
        ),
        "qnn": Toolkit(
            version=_distribution("onnxruntime-qnn"),
            packages="a python3 on PATH with the package onnxruntime-qnn",
            here=_module("onnxruntime_qnn"),
        ),
        "rknn": Toolkit(
            version=_distribution("rknn-toolkit2"),
            packages="a python3 on PATH with the package rknn-toolkit2",
            here=_module("rknn"),
        ),
    }
)
