# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: small models with weights from a seed, generating and training."""

import os

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402

from cases import case, hash_of, losses, main, need  # noqa: E402
from torch_models import labels, repeatable  # noqa: E402


@case("Llama generates, bf16")
def _():
    transformers = need("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                                      bos_token_id=1, eos_token_id=None, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    prompt = labels(2 * 8, 1000).view(2, 8)
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False)
    return hash_of(out)


@case("BERT trains, fp32")
def _():
    transformers = need("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=256, num_labels=3)
    model = transformers.BertForSequenceClassification._from_config(config, attn_implementation="eager").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y, seen = labels(8 * 32, 500).view(8, 32), labels(8, 3), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(input_ids=x, labels=y).loss
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return losses(seen)


if __name__ == "__main__":
    repeatable()
    main()
