#pragma once
// The fixtures' configurations, loading parameters from a fixture, and comparing gradients with it.

#include <boost/mpl/list.hpp>

#include "calm/model/calm.hpp"
#include "calm/model/owned_model.hpp"
#include "support/fixtures.hpp"
#include "support/typed.hpp"

namespace calm::test {

// The sizes of base/ and two/ (bench/reference/make_fixtures.py).
inline constexpr configuration<> base{
    .autoencoder = {.vocab_size = 97, .patch_size = 4, .hidden_size = 32, .intermediate_size = 80, .latent_size = 16},
    .hidden_size = 48,
    .intermediate_size = 96,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .head = {.num_mlp_layers = 3, .noise_size = 16}};
inline constexpr configuration<> two{.autoencoder = {.vocab_size = 101,
                                                     .patch_size = 2,
                                                     .hidden_size = 24,
                                                     .intermediate_size = 40,
                                                     .num_encoder_layers = 4,
                                                     .latent_size = 8},
                                     .hidden_size = 36,
                                     .intermediate_size = 56,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 3,
                                     .num_key_value_heads = 3,
                                     .head = {.num_mlp_layers = 2, .noise_size = 12}};

template <model_configuration auto C> char const* variant_name() {
    return C == base ? "base" : "two";
}

// A type for each variant, because Boost names a typed case by its type.
struct base_variant {
    static constexpr configuration<> value = base;
};
struct two_variant {
    static constexpr configuration<> value = two;
};

// A variant of the fixtures on a device. Under the sanitizers one device for each.
template <class Variant, class Backend> struct variant_on {
    static constexpr configuration<> value = Variant::value;
    using backend = Backend;
};
using variants_on_devices =
    std::conditional_t<is_sanitized, boost::mpl::list<variant_on<two_variant, cpu>, variant_on<base_variant, emulated>>,
                       boost::mpl::list<variant_on<base_variant, cpu>, variant_on<two_variant, cpu>,
                                        variant_on<base_variant, emulated>, variant_on<two_variant, emulated>>>;

// Memory of a model under test.
struct memory {
    arena<> values{"values"};
    arena<> gradients{"gradients"};
};

template <class T, class Backend>
void load_parameters(std::vector<any_parameter<space<Backend, T>>> const& parameters, fixture const& f) {
    for (auto const& p : parameters) {
        auto const values = f.floats<double>("param/" + p.name);
        BOOST_REQUIRE_MESSAGE(static_cast<index_t>(values.size()) == p.value.size(), "shape of " << p.name);
        host_access const access;
        std::copy(values.begin(), values.end(), p.value.data());
    }
}

template <class T, class Backend>
void check_gradients(std::vector<any_parameter<space<Backend, T>>> const& parameters, fixture const& f) {
    for (auto const& p : parameters)
        BOOST_TEST(close(copied(p.grad), f.floats<double>("grad/" + p.name), kind::gradient), p.name);
}

// A language model with the parameters of a fixture, including the frozen autoencoder.
template <model_configuration auto C> owned_model<calm_model<C>> loaded_calm(fixture const& f) {
    owned_model<calm_model<C>> own(f.size("vocab_size"));
    load_parameters(parameters_of(own.model), f);
    load_parameters(frozen_parameters_of(own.model), f);
    return own;
}

template <class T> std::span<T> span_of(T* data, index_t n) {
    return {data, static_cast<std::size_t>(n)};
}
template <class V> auto span_of(V const& v) {
    return std::span<typename V::element_type const>(v.data(), static_cast<std::size_t>(v.size()));
}

template <class T> vector_view<T const> as_vector(std::vector<T> const& v) {
    return {v.data(), extents<dyn>(static_cast<index_t>(v.size()))};
}

// (A, B, width) as (B, A, width).
template <class T> std::vector<T> swap_leading(std::vector<T> const& x, index_t a, index_t b) {
    auto const width = static_cast<index_t>(x.size()) / (a * b);
    std::vector<T> y(x.size());
    for (index_t i = 0; i < a; ++i)
        for (index_t j = 0; j < b; ++j)
            std::copy_n(x.begin() + (i * b + j) * width, width, y.begin() + (j * a + i) * width);
    return y;
}

}  // namespace calm::test
