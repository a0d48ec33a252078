#pragma once
// Keys of a config.json that other programs write and that do not affect a model's computations.

#include <string>
#include <string_view>

namespace calm::detail {

// From models saved by transformers: descriptions, options of training and generation, and keys of other architectures.
// A Llama has no sliding window, whatever its file says. Each key is between spaces.
inline constexpr std::string_view harmless_keys =
    " add_cross_attention auto_map bad_words_ids begin_suppress_tokens cache_implementation "
    "chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample "
    "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task "
    "forced_bos_token_id forced_eos_token_id id2label is_decoder is_encoder_decoder is_llama_config label2id "
    "length_penalty max_length max_window_layers min_length no_repeat_ngram_size num_beam_groups num_beams "
    "num_return_sequences output_attentions output_hidden_states output_scores prefix problem_type "
    "pruned_heads remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id "
    "sliding_window suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder "
    "tokenizer_class top_k top_p torchscript transformers.js_config transformers_version trust_remote_code "
    "typical_p unsloth_fixed unsloth_version use_bfloat16 use_return_dict use_sliding_window ";

// Whether a key of config.json is harmless: listed above, or beginning with '_' like private notes of other programs.
inline bool is_harmless(std::string_view key) {
    if (key.starts_with('_')) return true;
    return key.find(' ') == std::string_view::npos &&
           harmless_keys.find(' ' + std::string(key) + ' ') != std::string_view::npos;
}

}  // namespace calm::detail
