//! Reading and refusal of configurations. More tests of decoders are in the runtime crate.

use crate::checkpoints::{Checkpoint, goldens};
use miette::Diagnostic as _;
use probity_models::{ModelConfig, architectures, read_config};
use serde_json::{Value, json};

/// The golden checkpoint's configuration with some fields changed; null removes a field.
fn changed(name: &str, changes: &Value) -> Value {
    let mut config = Checkpoint::golden(name).config;
    for (field, value) in changes.as_object().expect("fields") {
        config[field] = value.clone();
    }
    config
}

fn config_of(name: &str) -> Value {
    let file = goldens().join("models").join(name).join("config.json");
    serde_json::from_slice(&std::fs::read(file).expect("a golden checkpoint")).expect("JSON")
}

#[test]
fn every_architecture_has_a_golden_checkpoint_that_it_reads() {
    for architecture in architectures() {
        let folder = match architecture {
            "mistral" => "mistral-window",
            name => name,
        };
        let config = config_of(folder);
        assert_eq!(config["model_type"], architecture);
        read_config(&config).expect("its own configuration is supported");
    }
}

#[test]
fn context_start_and_ties_come_from_the_configuration() {
    let seq2seq = |name: &str, changes: Value| match read_config(&changed(name, &changes)).expect("supported") {
        ModelConfig::EncoderDecoder(config) => config,
        other => panic!("an encoder-decoder, not {other:?}"),
    };
    let t5 = seq2seq("t5", json!({ "decoder_start_token_id": null, "pad_token_id": 7 }));
    assert_eq!((t5.context_length, t5.decoder_start, t5.tie_word_embeddings), (None, 7, true));
    let bart = seq2seq("bart", json!({}));
    assert_eq!((bart.context_length, bart.decoder_start, bart.tie_word_embeddings), (Some(200), 2, true));

    let context = |name| read_config(&Checkpoint::golden(name).config).expect("supported").context_length();
    assert_eq!((context("bert"), context("roberta"), context("distilbert")), (Some(200), Some(198), Some(200)));
    assert_eq!((context("modernbert"), context("deberta-v2")), (Some(200), Some(200)));
}

/// transformers 4.57.6 fills in missing fields; null means none.
#[test]
fn what_a_file_leaves_out_is_what_transformers_takes() {
    let decoder = |config: &Value| match read_config(config).expect("supported") {
        ModelConfig::Decoder(config) => config,
        other => panic!("a decoder, not {other:?}"),
    };
    let without = |name: &str, field: &str| {
        let mut config = config_of(name);
        config.as_object_mut().expect("fields").remove(field).expect("it was there");
        decoder(&config)
    };
    for (name, base) in
        [("mixtral", 1e6), ("smollm3", 2e6), ("gemma3_text", 1e6), ("gpt_oss", 150_000.0), ("llama", 1e4)]
    {
        let left_out = without(name, "rope_theta");
        assert_eq!(left_out.ropes[0].theta, base, "{name}");
    }
    assert_eq!(without("gemma2", "attn_logit_softcapping").score_cap, Some(50.0));
    assert_eq!(without("gemma2", "final_logit_softcapping").logit_cap, Some(30.0));
    let none = json!({ "attn_logit_softcapping": null, "final_logit_softcapping": null });
    let none = decoder(&changed("gemma2", &none));
    assert_eq!((none.score_cap, none.logit_cap), (None, None));
    let bare = json!({ "per_layer_config": null, "rope_parameters": null, "num_kv_shared_layers": null });
    let bare = decoder(&changed("gemma4_text", &bare));
    assert_eq!((bare.ropes[0].theta, bare.ropes[0].rotary_dim, bare.ropes[1].theta), (1e6, Some(512), 1e4));
    assert_eq!(without("gemma4_text", "sliding_window").layers[0].window, Some(512));
    assert_eq!(without("gemma4_text", "hidden_size_per_layer_input").layer_inputs.map(|of| of.width), Some(256));
    let alternating = without("gpt_oss", "layer_types");
    let windows: Vec<_> = alternating.layers.iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [Some(24), None, Some(24), None]);
    assert!(without("gpt_oss", "attention_bias").qkv_bias);
    for name in ["gemma2", "gemma3_text"] {
        let windows: Vec<_> = without(name, "sliding_window").layers.iter().filter_map(|layer| layer.window).collect();
        assert!(!windows.is_empty() && windows.iter().all(|window| *window == 4096), "{name}: {windows:?}");
    }
}

#[test]
fn tensors_that_checkpoints_carry_unused_are_known() {
    let is_spare = |name: &str, tensor: &str| Checkpoint::golden(name).read_config().is_spare(tensor);
    for (name, tensor) in [
        ("t5", "lm_head.weight"),
        ("t5", "decoder.embed_tokens.weight"),
        ("t5", "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
        ("bart", "model.encoder.embed_tokens.weight"),
        ("bert", "bert.pooler.dense.weight"),
        ("bert", "embeddings.position_ids"),
        ("bert", "cls.seq_relationship.bias"),
        ("roberta", "lm_head.decoder.weight"),
        ("distilbert", "vocab_projector.weight"),
        ("modernbert", "decoder.weight"),
        ("modernbert", "classifier.bias"),
        ("deberta-v2", "deberta.embeddings.position_ids"),
        ("deberta-v2", "lm_predictions.lm_head.dense.weight"),
        ("deberta-v2", "mask_predictions.classifier.weight"),
        // Of the layer that predicts further tokens.
        ("glm4_moe", "model.layers.3.eh_proj.weight"),
        ("glm4_moe", "model.layers.3.mlp.gate.e_score_correction_bias"),
        ("gemma4_text", "model.layers.3.self_attn.k_proj.weight"),
        ("gemma4_text", "model.layers.5.self_attn.v_proj.weight"),
        ("gemma4_text", "model.layers.4.self_attn.k_norm.weight"),
        ("qwen3_next", "mtp.layers.0.mlp.gate.weight"),
    ] {
        assert!(is_spare(name, tensor), "{tensor} of {name}");
    }
    for (name, tensor) in [
        ("flan-t5", "lm_head.weight"),
        ("t5", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        ("bart", "final_logits_bias"),
        ("bert", "cls.predictions.bias"),
        ("roberta", "roberta.encoder.layer.0.output.dense.adapter.weight"),
        ("modernbert", "model.layers.0.attn_norm.weight"),
        ("deberta-v2", "deberta.encoder.conv.conv.weight"),
        ("deberta-v2", "deberta.encoder.rel_embeddings.weight"),
        ("glm4_moe", "model.layers.4.eh_proj.weight"),
        ("glm4_moe", "model.layers.2.mlp.gate.bias"),
        ("glm4", "model.layers.2.eh_proj.weight"),
        ("gemma4_text", "model.layers.2.self_attn.k_proj.weight"),
        ("gemma4_text", "model.layers.3.self_attn.q_norm.weight"),
        ("gemma4_text", "model.layers.9.self_attn.k_proj.weight"),
        ("qwen3", "mtp.fc.weight"),
        ("qwen3_next", "model.layers.4.input_layernorm.weight"),
    ] {
        assert!(!is_spare(name, tensor), "{tensor} of {name}");
    }
}

/// Checks that a field is refused by name, with a hint.
fn assert_refused(name: &str, changes: &Value, field: &str) {
    let error = read_config(&changed(name, changes)).expect_err(name);
    assert!(error.to_string().contains(&format!("`{field}`")), "{name} {changes}: {error}");
    assert!(error.help().is_some(), "{name} {changes}: {error}");
}

#[test]
fn what_encoders_do_not_honour_is_refused_by_name() {
    for (name, changes, field) in [
        ("bert", json!({ "position_embedding_type": "relative_key" }), "position_embedding_type"),
        ("bert", json!({ "is_decoder": true }), "is_decoder"),
        ("bert", json!({ "num_attention_heads": 5 }), "num_attention_heads"),
        ("roberta", json!({ "hidden_act": "gelu_python" }), "hidden_act"),
        ("roberta", json!({ "pad_token_id": 200 }), "max_position_embeddings"),
        ("distilbert", json!({ "dim": null }), "dim"),
        ("modernbert", json!({ "num_attention_heads": 32 }), "num_attention_heads"),
        ("modernbert", json!({ "hidden_activation": "mish" }), "hidden_activation"),
        ("modernbert", json!({ "classifier_activation": "tanh" }), "classifier_activation"),
        ("modernbert", json!({ "classifier_pooling": "last" }), "classifier_pooling"),
        ("modernbert", json!({ "local_attention": 0 }), "local_attention"),
        ("modernbert", json!({ "local_rope_theta": 0.5 }), "local_rope_theta"),
        ("modernbert", json!({ "rope_scaling": { "rope_type": "linear", "factor": 2.0 } }), "rope_scaling"),
        ("modernbert", json!({ "position_embedding_type": "relative_key" }), "position_embedding_type"),
        ("modernbert", json!({ "layer_types": ["full_attention"] }), "layer_types"),
        ("deberta-v2", json!({ "conv_kernel_size": 3, "conv_act": "gelu" }), "conv_kernel_size"),
        ("deberta-v2", json!({ "embedding_size": 16 }), "embedding_size"),
        ("deberta-v2", json!({ "attention_head_size": 16 }), "attention_head_size"),
        ("deberta-v2", json!({ "pooler_hidden_size": 16 }), "pooler_hidden_size"),
        ("deberta-v2", json!({ "pooler_hidden_act": "mish" }), "pooler_hidden_act"),
        ("deberta-v2", json!({ "pos_att_type": ["p2p"] }), "pos_att_type"),
        ("deberta-v2", json!({ "pos_att_type": [] }), "pos_att_type"),
        ("deberta-v2", json!({ "norm_rel_ebd": "batch_norm" }), "norm_rel_ebd"),
        ("deberta-v2", json!({ "relative_attention": false }), "norm_rel_ebd"),
        ("deberta-v2", json!({ "position_buckets": 15 }), "position_buckets"),
        ("deberta-v2", json!({ "position_buckets": 400 }), "position_buckets"),
        ("deberta-v2", json!({ "max_relative_positions": 168_445_706 }), "max_relative_positions"),
        ("deberta-v2", json!({ "type_vocab_size": -1 }), "type_vocab_size"),
    ] {
        assert_refused(name, &changes, field);
    }
}

#[test]
fn what_a_glm_a_ministral_or_a_hybrid_does_not_honour_is_refused_by_name() {
    for (name, changes, field) in [
        ("glm4", json!({ "sliding_window": 64 }), "sliding_window"),
        ("glm4", json!({ "attention_bias": null }), "attention_bias"),
        ("glm4", json!({ "partial_rotary_factor": 0.05 }), "partial_rotary_factor"),
        ("glm4", json!({ "num_nextn_predict_layers": 1 }), "num_nextn_predict_layers"),
        ("glm4", json!({ "vision_config": {} }), "vision_config"),
        ("glm4_moe", json!({ "n_group": 2 }), "n_group"),
        ("glm4_moe", json!({ "topk_group": 2 }), "topk_group"),
        ("glm4_moe", json!({ "scoring_func": "softmax" }), "scoring_func"),
        ("glm4_moe", json!({ "num_experts_per_tok": 7 }), "num_experts_per_tok"),
        ("glm4_moe", json!({ "n_shared_experts": null }), "n_shared_experts"),
        ("glm4_moe", json!({ "n_shared_experts": u32::MAX }), "n_shared_experts"),
        ("glm4_moe", json!({ "first_k_dense_replace": null }), "first_k_dense_replace"),
        ("glm4_moe", json!({ "mtp_layers": 1 }), "mtp_layers"),
        ("glm4_moe", json!({ "vision_config": {} }), "vision_config"),
        ("ministral3", json!({ "attention_bias": true }), "attention_bias"),
        ("ministral3", json!({ "rope_parameters": null }), "rope_parameters.llama_4_scaling_beta"),
        (
            "ministral3",
            json!({ "rope_parameters": { "rope_type": "default", "llama_4_scaling_beta": 0.1 } }),
            "rope_parameters.rope_type",
        ),
        (
            "ministral3",
            json!({ "rope_parameters": { "rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": -0.1 } }),
            "rope_parameters.llama_4_scaling_beta",
        ),
        ("qwen3_next", json!({ "mlp_only_layers": [1] }), "mlp_only_layers"),
        ("qwen3_next", json!({ "decoder_sparse_step": 2 }), "decoder_sparse_step"),
        ("qwen3_next", json!({ "shared_expert_intermediate_size": null }), "shared_expert_intermediate_size"),
        ("qwen3_next", json!({ "linear_num_value_heads": 3 }), "linear_num_value_heads"),
        ("qwen3_next", json!({ "linear_key_head_dim": 1 << 20 }), "linear_key_head_dim"),
        ("qwen3_next", json!({ "layer_types": ["linear_attention"] }), "layer_types"),
        (
            "qwen3_next",
            json!({ "layer_types": ["linear_attention", "full_attention", "mamba", "mamba"] }),
            "layer_types",
        ),
        ("qwen3_next", json!({ "hidden_act": "gelu" }), "hidden_act"),
        ("qwen3_next", json!({ "sliding_window": 64 }), "sliding_window"),
        ("qwen3_5_text", json!({ "attn_output_gate": false }), "attn_output_gate"),
        ("qwen3_5_text", json!({ "partial_rotary_factor": 0.5 }), "rope_parameters.partial_rotary_factor"),
        ("qwen3_5_moe_text", json!({ "norm_topk_prob": false }), "norm_topk_prob"),
        ("qwen3_5_moe_text", json!({ "num_experts": 1 }), "num_experts_per_tok"),
        ("lfm2", json!({ "conv_bias": true }), "conv_bias"),
        ("lfm2", json!({ "conv_L_cache": 1 }), "conv_L_cache"),
        ("lfm2", json!({ "norm_eps": -1e-3 }), "norm_eps"),
        ("lfm2", json!({ "full_attn_idxs": [1, 4] }), "full_attn_idxs"),
        ("lfm2", json!({ "full_attn_idxs": "13" }), "full_attn_idxs"),
        ("lfm2", json!({ "intermediate_size": 1, "block_multiple_of": 1 }), "intermediate_size"),
        ("lfm2", json!({ "layer_types": ["conv", "linear_attention", "conv", "conv"] }), "layer_types"),
        ("lfm2", json!({ "block_use_swiglu": false }), "block_use_swiglu"),
        ("lfm2", json!({ "intermediate_size": null }), "intermediate_size"),
    ] {
        assert_refused(name, &changes, field);
    }
}

#[test]
fn what_would_change_numbers_and_is_not_implemented_is_refused_by_name() {
    for (name, changes, field) in [
        // If both are present, the newer field takes precedence, as in the reference.
        ("t5", json!({ "feed_forward_proj": "gated-tanh", "dense_act_fn": null }), "feed_forward_proj"),
        ("t5", json!({ "dense_act_fn": "quick_gelu" }), "dense_act_fn"),
        ("t5", json!({ "is_decoder": true }), "is_decoder"),
        ("t5", json!({ "relative_attention_num_buckets": 30 }), "relative_attention_num_buckets"),
        ("t5", json!({ "relative_attention_max_distance": 16 }), "relative_attention_max_distance"),
        ("t5", json!({ "relative_attention_max_distance": 168_445_706 }), "relative_attention_max_distance"),
        ("t5", json!({ "decoder_start_token_id": null, "pad_token_id": null }), "decoder_start_token_id"),
        ("t5", json!({ "decoder_start_token_id": -1 }), "decoder_start_token_id"),
        ("flan-t5", json!({ "num_experts": 8 }), "num_experts"),
        ("bart", json!({ "activation_function": "mish" }), "activation_function"),
        ("bart", json!({ "normalize_before": true }), "normalize_before"),
        ("bart", json!({ "decoder_attention_heads": 3 }), "decoder_attention_heads"),
        ("bart", json!({ "tie_word_embeddings": false }), "tie_word_embeddings"),
        ("qwen3", json!({ "use_sliding_window": true, "sliding_window": 24 }), "use_sliding_window"),
        ("qwen3", json!({ "layer_types": ["full_attention", "sliding_attention", "full_attention"] }), "layer_types"),
        ("qwen3", json!({ "rope_scaling": { "rope_type": "dynamic", "factor": 4.0 } }), "rope_scaling"),
        ("qwen3", json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0, "gamma": 1 } }), "rope_scaling.gamma"),
        ("qwen3", json!({ "head_dim": null }), "head_dim"),
        ("qwen3", json!({ "head_dim": 25 }), "head_dim"),
        ("qwen3", json!({ "num_key_value_heads": null }), "num_key_value_heads"),
        ("qwen3", json!({ "num_experts": 8 }), "num_experts"),
        ("llama-head-dim", json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor"),
        ("granite", json!({ "residual_multiplier": 0 }), "residual_multiplier"),
        ("granite", json!({ "num_local_experts": 40 }), "num_local_experts"),
        ("granite", json!({ "position_embedding_type": "alibi" }), "position_embedding_type"),
        ("granitemoe", json!({ "num_experts_per_tok": 6 }), "num_experts_per_tok"),
        ("granitemoe", json!({ "num_local_experts": null }), "num_local_experts"),
        ("granitemoehybrid", json!({ "layer_types": ["attention", "mamba", "attention"] }), "layer_types"),
        ("granitemoehybrid", json!({ "layer_types": ["linear_attention", "attention", "attention"] }), "layer_types"),
        ("granitemoehybrid", json!({ "layer_types": ["attention"] }), "layer_types"),
        ("granitemoehybrid", json!({ "layer_types": null }), "layer_types"),
        ("granitemoehybrid", json!({ "normalization_function": "layernorm" }), "normalization_function"),
        ("granitemoehybrid", json!({ "num_local_experts": null }), "num_local_experts"),
        ("olmo2", json!({ "clip_qkv": 8.0 }), "clip_qkv"),
        ("smollm3", json!({ "no_rope_layers": [1, 1, 1, 2] }), "no_rope_layers"),
        ("smollm3", json!({ "no_rope_layers": [1, 1] }), "no_rope_layers"),
        ("smollm3", json!({ "use_sliding_window": true }), "use_sliding_window"),
        ("phi3", json!({ "partial_rotary_factor": 0.05 }), "partial_rotary_factor"),
        ("phi3", json!({ "rope_scaling": { "type": "yarn" } }), "rope_scaling"),
        ("phi3-longrope", json!({ "original_max_position_embeddings": null }), "original_max_position_embeddings"),
        (
            "phi3-longrope",
            json!({ "rope_scaling": { "type": "longrope", "short_factor": [1.0] } }),
            "rope_scaling.short_factor",
        ),
        ("gemma2", json!({ "query_pre_attn_scalar": null }), "query_pre_attn_scalar"),
        ("gemma2", json!({ "attn_logit_softcapping": -1 }), "attn_logit_softcapping"),
        ("gemma3_text", json!({ "use_bidirectional_attention": true }), "use_bidirectional_attention"),
        ("gemma3_text", json!({ "layer_types": ["full_attention"] }), "layer_types"),
        (
            "ministral",
            json!({ "layer_types": ["full_attention", "chunked_attention", "full_attention"] }),
            "layer_types",
        ),
        ("mixtral", json!({ "num_experts_per_tok": 6 }), "num_experts_per_tok"),
        ("mixtral", json!({ "num_local_experts": null }), "num_local_experts"),
        ("qwen3_moe", json!({ "mlp_only_layers": [1] }), "mlp_only_layers"),
        ("qwen3_moe", json!({ "decoder_sparse_step": 2 }), "decoder_sparse_step"),
    ] {
        assert_refused(name, &changes, field);
    }
    // If two fields disagree, the message contains both.
    for (name, changes, both) in [
        ("qwen3", json!({ "layer_types": ["full_attention", "full_attention"] }), ["3", "not 2"]),
        ("llama-head-dim", json!({ "layer_types": [] }), ["3", "not 0"]),
        ("qwen3", json!({ "rope_parameters": { "rope_theta": 5e6 } }), ["1000000", "5000000"]),
        (
            "llama-head-dim",
            json!({ "rope_scaling": { "rope_type": "linear", "factor": 2, "rope_theta": 5e5 } }),
            ["10000", "500000"],
        ),
        (
            "llama-head-dim",
            json!({ "rope_scaling": { "rope_type": "linear", "type": "yarn", "factor": 2 } }),
            ["rope_scaling.type", "linear"],
        ),
        ("glm4", json!({ "rope_parameters": { "partial_rotary_factor": 0.25 } }), ["0.25", "0.5"]),
    ] {
        let error = read_config(&changed(name, &changes)).expect_err(name).to_string();
        assert!(both.iter().all(|said| error.contains(said)), "{name} {changes}: {error}");
    }
}

#[test]
fn what_a_gemma_4_does_not_honour_is_refused_by_name() {
    let one_rope = json!({ "rope_type": "default", "rope_theta": 1e4 });
    let all = |kind: &str| json!({ "layer_types": vec![kind; 6] });
    for (changes, field) in [
        (json!({ "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2 }), "enable_moe_block"),
        (json!({ "use_bidirectional_attention": "all" }), "use_bidirectional_attention"),
        (json!({ "num_kv_shared_layers": 6 }), "num_kv_shared_layers"),
        (json!({ "num_kv_shared_layers": 5 }), "num_kv_shared_layers"),
        (json!({ "num_kv_shared_layers": -1 }), "num_kv_shared_layers"),
        (json!({ "per_layer_config": { "1": { "head_dim": 32 } } }), "per_layer_config"),
        (json!({ "per_layer_config": { "9": { "head_dim": 32 } } }), "per_layer_config"),
        (json!({ "per_layer_config": { "0": { "sliding_window": 3 } } }), "sliding_window"),
        (json!({ "per_layer_config": null, "global_head_dim": 33 }), "global_head_dim"),
        (all("sliding_attention"), "layer_types"),
        (all("chunked_attention"), "layer_types"),
        (json!({ "sliding_window": null }), "sliding_window"),
        (json!({ "rope_parameters": { "full_attention": one_rope } }), "sliding_attention"),
        (json!({ "rope_parameters": one_rope }), "full_attention"),
        (json!({ "rope_theta": 1e4 }), "rope_theta"),
        (json!({ "query_pre_attn_scalar": 256 }), "query_pre_attn_scalar"),
        (json!({ "vocab_size_per_layer_input": null }), "vocab_size_per_layer_input"),
        (json!({ "hidden_activation": "mish" }), "hidden_act"),
    ] {
        assert_refused("gemma4_text", &changes, field);
    }
    let counts = json!({ "per_layer_config": null, "num_global_key_value_heads": 3 });
    assert_refused("gemma4-keys-as-values", &counts, "num_global_key_value_heads");
}

#[test]
fn what_a_gpt_oss_does_not_honour_is_refused_by_name() {
    for (name, changes, field) in [
        ("gpt_oss", json!({ "rope_scaling": null }), "rope_scaling"),
        (
            "gpt_oss",
            json!({ "rope_scaling": { "rope_type": "yarn" }, "initial_context_length": null }),
            "rope_scaling.factor",
        ),
        ("gpt_oss", json!({ "head_dim": null }), "head_dim"),
        ("gpt_oss", json!({ "num_key_value_heads": null }), "num_key_value_heads"),
        ("gpt_oss", json!({ "num_local_experts": null }), "num_local_experts"),
        ("gpt_oss", json!({ "num_experts_per_tok": 6 }), "num_experts_per_tok"),
        ("gpt_oss", json!({ "experts_per_token": 4 }), "experts_per_token"),
        ("gpt_oss", json!({ "initial_context_length": 4096 }), "initial_context_length"),
        ("gpt_oss", json!({ "swiglu_limit": 5.0 }), "swiglu_limit"),
        ("gpt_oss", json!({ "swiglu_alpha": 1.0 }), "swiglu_alpha"),
        ("gpt_oss", json!({ "hidden_act": "gelu" }), "hidden_act"),
        ("gpt_oss", json!({ "sliding_window": null }), "sliding_window"),
        ("gpt_oss", json!({ "layer_types": ["sliding_attention"] }), "layer_types"),
        ("gpt_oss", json!({ "quantization_config": { "quant_method": "fp8" } }), "quantization_config"),
        ("gpt_oss", json!({ "quantization_config": { "quant_method": "mxfp4", "bits": 2 } }), "quantization_config"),
        ("gpt_oss", json!({ "quantization_config": "mxfp4" }), "quantization_config"),
    ] {
        assert_refused(name, &changes, field);
    }
}

#[test]
fn the_same_said_otherwise_is_the_same() {
    for (name, changes) in [
        (
            "t5",
            json!({ "dense_act_fn": "relu", "is_gated_act": false, "n_positions": 512, "task_specific_params": {} }),
        ),
        ("flan-t5", json!({ "dense_act_fn": null, "is_gated_act": null })),
        ("bert", json!({ "pooler_type": "first_token_transform", "is_decoder": false })),
        (
            "modernbert",
            json!({ "layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "reference_compile": true }),
        ),
        ("modernbert", json!({ "classifier_pooling": null, "hidden_activation": null, "local_attention": 25 })),
        ("modernbert-biases", json!({ "local_rope_theta": 160_000.0, "local_attention": 40 })),
        ("deberta-v2", json!({ "max_relative_positions": 200, "conv_kernel_size": 0, "conv_act": "gelu" })),
        ("deberta-v2", json!({ "pos_att_type": "C2P | p2c", "legacy": null, "type_vocab_size": null })),
        ("deberta-v2", json!({ "pooler_hidden_act": null, "pooler_hidden_size": null, "summary_type": "first" })),
        ("deberta-v2-own", json!({ "position_buckets": -1, "norm_rel_ebd": "none", "tie_word_embeddings": true })),
        // A disabled window has no effect, whatever its length.
        (
            "qwen3",
            json!({ "use_sliding_window": null, "sliding_window": 24, "max_window_layers": 2, "attention_bias": null }),
        ),
        ("qwen3", json!({ "layer_types": null, "rope_parameters": { "rope_theta": 1e6 } })),
        ("qwen3", json!({ "rope_theta": null, "rope_parameters": { "rope_theta": 1e6 } })),
        ("glm4", json!({ "partial_rotary_factor": null })),
        (
            "glm4",
            json!({
                "rope_theta": null, "partial_rotary_factor": null,
                "rope_parameters": { "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5 },
            }),
        ),
        (
            "granitemoehybrid",
            json!({ "layer_types": null, "layers_block_type": ["attention", "attention", "attention"] }),
        ),
        (
            "granitemoehybrid",
            json!({ "mamba_n_heads": null, "normalization_function": "rmsnorm", "init_method": "mup" }),
        ),
        ("granitemoehybrid-experts", json!({ "position_embedding_type": null })),
        ("glm4_moe", json!({ "num_nextn_predict_layers": null, "num_mtp_layers": 1 })),
        (
            "glm4_moe",
            json!({ "rope_parameters": null, "rope_theta": 1e4, "partial_rotary_factor": 0.5, "n_group": null }),
        ),
        (
            "ministral3",
            json!({
                "rope_parameters": {
                    "type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32,
                    "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                    "llama_4_scaling_beta": 0.4, "max_position_embeddings": 256,
                },
            }),
        ),
        // The reference's default base.
        ("llama-head-dim", json!({ "rope_theta": null })),
        // As published files have it.
        ("gemma4_text", json!({ "per_layer_config": null, "global_head_dim": 32, "num_global_key_value_heads": 1 })),
        (
            "gemma4-keys-as-values",
            json!({ "per_layer_config": null, "global_head_dim": 32, "num_global_key_value_heads": 1 }),
        ),
        (
            "gpt_oss",
            json!({
                "rope_scaling": null, "rope_theta": null, "quantization_config": null, "swiglu_alpha": 1.702,
                "swiglu_limit": 7, "layer_types": null, "initial_context_length": null, "rope_parameters": {
                    "rope_type": "yarn", "rope_theta": 150_000.0, "factor": 4.0, "beta_fast": 4.0, "truncate": false,
                    "original_max_position_embeddings": 64,
                },
            }),
        ),
        ("qwen3_next", json!({ "layer_types": null, "full_attention_interval": 4 })),
        ("qwen3_next", json!({ "full_attention_interval": 2, "norm_topk_prob": null, "linear_conv_kernel_dim": 4 })),
        ("qwen3_5_text", json!({ "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "attn_output_gate": true })),
        // As published, with fields that only older versions read.
        (
            "lfm2",
            json!({
                "block_dim": 64, "block_ff_dim": 130, "block_mlp_init_scale": 1.0, "block_norm_eps": 1e-3,
                "block_out_init_scale": 1.0, "block_use_swiglu": true, "block_use_xavier_init": true, "conv_dim": 64,
                "conv_dim_out": 64, "conv_use_xavier_init": true, "intermediate_size": 7, "num_heads": 4,
                "rope_theta": 1e6, "rope_parameters": null, "use_pos_enc": true, "tie_word_embeddings": null,
            }),
        ),
        (
            "lfm2",
            json!({ "full_attn_idxs": null, "layer_types": ["conv", "full_attention", "conv", "full_attention"] }),
        ),
        (
            "lfm2",
            json!({
                "intermediate_size": 96, "block_auto_adjust_ff_dim": false, "tie_embedding": true,
                "tie_word_embeddings": false,
            }),
        ),
        ("bart", json!({ "normalize_before": false, "num_beams": 4, "early_stopping": true })),
    ] {
        let expected = Checkpoint::golden(name).read_config();
        assert_eq!(read_config(&changed(name, &changes)).expect("supported"), expected, "{name} {changes}");
    }
}

#[test]
fn distilled_models_of_deepseek_r1_are_read() {
    // The fields of DeepSeek-R1-Distill-Qwen-1.5B and -Llama-8B.
    let qwen = json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151_643,
        "eos_token_id": 151_643, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
        "intermediate_size": 8960, "max_position_embeddings": 131_072, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "rope_theta": 10_000, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.44.0", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
        "vocab_size": 151_936,
    });
    let llama = json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128_000, "eos_token_id": 128_001, "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 14_336, "max_position_embeddings": 131_072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": false,
        "rope_scaling": {
            "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128_256,
    });
    for (config, layers) in [(qwen, 28), (llama, 32)] {
        let read = read_config(&config).expect("supported");
        assert_eq!((read.layers(), read.context_length()), (Some(layers), Some(131_072)));
        let ModelConfig::Decoder(decoder) = read else { panic!("a decoder") };
        assert!(decoder.layers.iter().all(|layer| layer.window.is_none()));
    }
}

#[test]
fn what_candle_transformers_would_read_past_is_refused() {
    let context =
        |name: &str, changes: Value| read_config(&changed(name, &changes)).map(|config| config.context_length());
    assert_eq!(context("starcoder2", json!({ "sliding_window": 64 })), Ok(Some(64)), "no further than its window");
    assert_eq!(
        context("gemma", json!({ "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh" })),
        Ok(Some(256))
    );
    for (name, field, value) in [
        ("gemma", "hidden_act", json!("gelu")),
        ("gemma", "rope_scaling", json!({ "type": "linear", "factor": 2.0 })),
        ("gemma", "tie_word_embeddings", json!(false)),
        ("gemma", "architectures", json!(["GemmaForSequenceClassification"])),
        ("olmo", "rope_scaling", json!({ "type": "dynamic", "factor": 2.0 })),
        ("phi", "qk_layernorm", json!(true)),
        ("stablelm", "use_parallel_residual", json!(true)),
        ("starcoder2", "hidden_act", json!("mish")),
    ] {
        let error = context(name, json!({ field: value })).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("config field `{field}` = ")) && error.contains(name), "{error}");
    }
    let far = ("max_position_embeddings", u32::MAX);
    for (field, value) in [("num_attention_heads", 5), ("num_key_value_heads", 3), ("hidden_size", 0), far] {
        let error = context("helium", json!({ field: value })).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("config field `{field}` is {value}, expected ")), "{error}");
    }
}
