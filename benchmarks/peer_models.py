"""Models as the peers take them; run by a peer's own Python, without this project installed.

``python benchmarks/peer_models.py bert FOLDER``    a random BERT of 48 layers: a Hugging Face folder, and TorchScript
``python benchmarks/peer_models.py olive FOLDER``   a configuration of Olive for the model of ``benchmarks/deep.py``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LAYERS, WIDTH, HEADS, WORDS, LENGTH = 48, 256, 8, 2000, 32


def bert(folder: Path) -> None:
    """``folder/hub`` and ``folder/bert.pt``, of the same weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
    )
    model = BertModel(config).eval()
    words = folder / "words.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(WORDS - 5))]))
    BertTokenizer(str(words)).save_pretrained(folder / "hub")
    model.save_pretrained(folder / "hub")
    ids = torch.randint(0, WORDS, (2, LENGTH))

    class Tensors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.inner(input_ids, attention_mask).last_hidden_state

    with torch.inference_mode():
        torch.jit.save(torch.jit.trace(Tensors(), (ids, torch.ones_like(ids))), str(folder / "bert.pt"))


def olive(folder: Path) -> None:
    """Export by the legacy exporter and Olive's own simplification; ``olive.json``."""
    script = folder / "olive_script.py"
    here = Path(__file__).resolve().parent
    script.write_text(f"import sys\nsys.path.insert(0, {str(here)!r})\nimport deep\n\n\n{LOADER}")
    config: dict[str, Any] = {
        "input_model": {
            "type": "PyTorchModel",
            "model_loader": "load",
            "model_script": str(script),
            "io_config": {
                "input_names": ["x"],
                "input_shapes": [[2, 3, 32, 32]],
                "input_types": ["float32"],
                "output_names": ["y"],
                "dynamic_axes": {"x": {"0": "batch"}, "y": {"0": "batch"}},
            },
        },
        "passes": {
            "conversion": {"type": "OnnxConversion", "target_opset": 17, "use_dynamo_exporter": False},
            "peephole": {"type": "OnnxPeepholeOptimizer"},
        },
        "cache_dir": str(folder / "olive-cache"),
        "output_dir": str(folder / "olive-out"),
        "evaluate_input_model": False,
    }
    (folder / "olive.json").write_text(json.dumps(config))


LOADER = "def load(_path=None):\n    return deep.make()[0]\n"

if __name__ == "__main__":
    {"bert": bert, "olive": olive}[sys.argv[1]](Path(sys.argv[2]))
