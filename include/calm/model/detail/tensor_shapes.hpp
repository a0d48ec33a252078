#pragma once
// Names and shapes of a model's tensors when its sizes are known only at run time: what its files must contain. They
// match parameters_of for every compiled configuration.

#include <string>
#include <utility>
#include <vector>

#include "calm/model/config.hpp"

namespace calm {

// Name and shape of one tensor.
struct tensor_shape {
    std::string name;            // in files
    std::vector<index_t> shape;  // its dimensions
};

// The tensors of a model, or of a part whose names share a prefix.
class tensor_shapes {
public:
    std::vector<tensor_shape> all;          // unordered
    std::vector<std::string> unknown_from;  // prefixes below which any tensor is accepted: heads that list none

    // Adds one tensor.
    void add(std::string const& name, std::vector<index_t> shape) { all.push_back({prefix_ + name, std::move(shape)}); }
    // The weight (out, in) of a linear layer.
    void matrix(std::string const& name, index_t in, index_t out) { add(name + ".weight", {out, in}); }
    // The weight and bias of a linear layer.
    void linear(std::string const& name, index_t in, index_t out) {
        matrix(name, in, out);
        add(name + ".bias", {out});
    }
    // The gain of a norm on rows of `width`.
    void gain(std::string const& name, index_t width) { add(name + ".weight", {width}); }
    // The gain and bias of a LayerNorm on rows of `width`.
    void layer_norm(std::string const& name, index_t width) {
        gain(name, width);
        add(name + ".bias", {width});
    }
    // The three matrices of a SwiGLU.
    void swiglu(std::string const& name, index_t width, index_t inner) {
        matrix(name + ".gate_proj", width, inner);
        matrix(name + ".up_proj", width, inner);
        matrix(name + ".down_proj", inner, width);
    }
    // Tensors that `f` adds get the prefix "name.".
    template <class F> void inside(std::string const& name, F const& f) {
        auto const before = prefix_;
        prefix_ += name + ".";
        f();
        prefix_ = before;
    }
    // Calls f `count` times, with the prefixes "name.0.", "name.1." and so on.
    template <class F> void repeated(std::string const& name, index_t count, F const& f) {
        for (index_t i = 0; i < count; ++i) inside(name + "." + std::to_string(i), f);
    }
    // Accepts any tensors below this name.
    void anything(std::string const& name) { unknown_from.push_back(prefix_ + name + "."); }

private:
    std::string prefix_;
};

// Adds the tensors of a Llama stack, named as in LlamaModel. num_attention_heads must divide hidden_size.
inline void add_tensors(tensor_shapes& to, llama_sizes const& c) {
    index_t const queries = c.num_attention_heads * c.head_size(), keys = c.num_key_value_heads * c.head_size();
    to.repeated("layers", c.num_hidden_layers, [&] {
        to.gain("input_layernorm", c.hidden_size);
        to.matrix("self_attn.q_proj", c.hidden_size, queries);
        to.matrix("self_attn.k_proj", c.hidden_size, keys);
        to.matrix("self_attn.v_proj", c.hidden_size, keys);
        to.matrix("self_attn.o_proj", queries, c.hidden_size);
        to.gain("post_attention_layernorm", c.hidden_size);
        to.swiglu("mlp", c.hidden_size, c.intermediate_size);
    });
    to.gain("norm", c.hidden_size);
}

// Adds the tensors of an autoregressive model.
inline void add_tensors(tensor_shapes& to, autoregressive_configuration const& c) {
    to.inside("model", [&] {
        to.add("embed_tokens.weight", {c.vocab_size, c.llama.hidden_size});
        add_tensors(to, c.llama);
    });
    if (!c.tie_word_embeddings) to.add("lm_head.weight", {c.vocab_size, c.llama.hidden_size});
}

// Adds the tensors of an autoencoder for c.vocab_size ids.
inline void add_tensors(tensor_shapes& to, autoencoder_configuration const& c) {
    index_t const D = c.hidden_size, K = c.patch_size, L = c.latent_size;
    auto const layer = [&] {
        to.gain("layernorm", D);
        to.swiglu("mlp", D, c.intermediate_size);
    };
    to.inside("encoder", [&] {
        to.add("embed_tokens.weight", {c.vocab_size, D});
        to.repeated("encoder_layers", c.num_encoder_layers, layer);
        to.linear("squeeze_layer", K * D, D);
        to.gain("norm", D);
        to.linear("hidden_to_latent", D, 2 * L);
    });
    to.inside("decoder", [&] {
        to.linear("latent_to_hidden", L, D);
        to.repeated("decoder_layers", c.num_decoder_layers, layer);
        to.linear("expand_layer", D, K * D);
        to.gain("norm", D);
    });
}

// Adds the tensors of a CALM without its autoencoder; c.autoencoder.vocab_size is V.
inline void add_tensors(tensor_shapes& to, configuration<any_head> const& c) {
    index_t const D = c.hidden_size, K = c.autoencoder.patch_size, L = c.autoencoder.latent_size;
    auto const projection = [&](std::string const& name, index_t width) {
        to.inside(name, [&] {
            to.linear("0", width, 2 * D);
            to.linear("2", 2 * D, D);
            to.layer_norm("3", D);
        });
    };
    bool const reads_tokens = c.input != input_kind::latents;
    to.inside("transformer", [&] {
        if (reads_tokens) to.add("embed_tokens.weight", {c.autoencoder.vocab_size, D});
        add_tensors(to, llama_sizes_of(c));
    });
    if (reads_tokens) projection("embed_proj", K * D);
    if (c.input != input_kind::tokens) projection("latent_proj", L);
    if (c.head.facts == nullptr || c.head.facts->tensors == nullptr) return to.anything("mlp_generator");
    to.inside("mlp_generator", [&] {
        c.head.facts->tensors(c.head.sizes, {D, L, K, c.autoencoder.vocab_size, c.autoencoder.hidden_size}, to);
    });
}

}  // namespace calm
