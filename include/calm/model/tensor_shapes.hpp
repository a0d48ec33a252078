#pragma once
// Names and shapes of the tensors of a model whose sizes are known at run time only: what its files must hold. For
// every configuration that is compiled they are those of parameters_of.

#include <string>
#include <utility>
#include <vector>

#include "calm/model/config.hpp"

namespace calm {

// The name and the shape of one tensor.
struct tensor_shape {
    std::string name;            // in files
    std::vector<index_t> shape;  // its sizes
};

// The tensors of a model, or of a part of it whose names all begin with a prefix.
class tensor_shapes {
public:
    std::vector<tensor_shape> all;          // in no order
    std::vector<std::string> unknown_from;  // prefixes below which any tensor may stand: of heads that list none

    // One tensor.
    void add(std::string const& name, std::vector<index_t> shape) { all.push_back({prefix_ + name, std::move(shape)}); }
    // The weight (out, in) of a linear layer.
    void matrix(std::string const& name, index_t in, index_t out) { add(name + ".weight", {out, in}); }
    // The same with the layer's bias.
    void linear(std::string const& name, index_t in, index_t out) {
        matrix(name, in, out);
        add(name + ".bias", {out});
    }
    // A gain of rows of `width`.
    void gain(std::string const& name, index_t width) { add(name + ".weight", {width}); }
    // A gain and a bias of them.
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
    // What `f` adds gets names behind "name.".
    template <class F> void inside(std::string const& name, F const& f) {
        auto const before = prefix_;
        prefix_ += name + ".";
        f();
        prefix_ = before;
    }
    // The same `count` times, behind "name.0.", "name.1." and so on.
    template <class F> void repeated(std::string const& name, index_t count, F const& f) {
        for (index_t i = 0; i < count; ++i) inside(name + "." + std::to_string(i), f);
    }
    // Any tensors below this name.
    void anything(std::string const& name) { unknown_from.push_back(prefix_ + name + "."); }

private:
    std::string prefix_;
};

// Adds those of a stack, as LlamaModel calls them; num_attention_heads divides hidden_size.
inline void add_tensors(tensor_shapes& to, llama_sizes const& c) {
    index_t const keys = c.hidden_size / c.num_attention_heads * c.num_key_value_heads;
    to.repeated("layers", c.num_hidden_layers, [&] {
        to.gain("input_layernorm", c.hidden_size);
        to.matrix("self_attn.q_proj", c.hidden_size, c.hidden_size);
        to.matrix("self_attn.k_proj", c.hidden_size, keys);
        to.matrix("self_attn.v_proj", c.hidden_size, keys);
        to.matrix("self_attn.o_proj", c.hidden_size, c.hidden_size);
        to.gain("post_attention_layernorm", c.hidden_size);
        to.swiglu("mlp", c.hidden_size, c.intermediate_size);
    });
    to.gain("norm", c.hidden_size);
}

// Those of an autoregressive model.
inline void add_tensors(tensor_shapes& to, autoregressive_configuration const& c) {
    to.inside("model", [&] {
        to.add("embed_tokens.weight", {c.vocab_size, c.llama.hidden_size});
        add_tensors(to, c.llama);
    });
    if (!c.tie_word_embeddings) to.add("lm_head.weight", {c.vocab_size, c.llama.hidden_size});
}

// Those of an autoencoder of c.vocab_size ids.
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

// Those of a CALM but for its autoencoder's; c.autoencoder.vocab_size is V.
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
