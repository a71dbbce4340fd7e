"""Published models by name: the fields of their Hugging Face configs that decide sizes, without any weights."""


def _llama(vocab: int, hidden: int, mlp: int, layers: int, heads: int, kv_heads: int, seq: int, **other) -> dict:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": seq,
        "tie_word_embeddings": False,
        **other,
    }


def _qwen3(hidden: int, mlp: int, layers: int, heads: int, tied: bool) -> dict:
    return {
        **_llama(151936, hidden, mlp, layers, heads, 8, 40960),
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 128,
        "tie_word_embeddings": tied,
    }


def _gpt2(hidden: int, layers: int, heads: int) -> dict:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 50257,
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": 1024,
    }


PUBLISHED = {
    "llama-2-7b": _llama(32000, 4096, 11008, 32, 32, 32, 4096),
    "llama-2-13b": _llama(32000, 5120, 13824, 40, 40, 40, 4096),
    "llama-2-70b": _llama(32000, 8192, 28672, 80, 64, 8, 4096),
    "llama-3.1-8b": _llama(128256, 4096, 14336, 32, 32, 8, 131072),
    "llama-3.1-70b": _llama(128256, 8192, 28672, 80, 64, 8, 131072),
    "llama-3.1-405b": _llama(128256, 16384, 53248, 126, 128, 8, 131072),
    "llama-3.2-1b": _llama(128256, 2048, 8192, 16, 32, 8, 131072, head_dim=64, tie_word_embeddings=True),
    "llama-3.2-3b": _llama(128256, 3072, 8192, 28, 24, 8, 131072, head_dim=128, tie_word_embeddings=True),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, tied=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": _qwen3(4096, 12288, 36, 32, tied=False),
    "qwen3-14b": _qwen3(5120, 17408, 40, 40, tied=False),
    "qwen3-32b": _qwen3(5120, 25600, 64, 64, tied=False),
    "mistral-7b": {
        **_llama(32000, 4096, 14336, 32, 32, 8, 32768),
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": 4096,
    },
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
}
