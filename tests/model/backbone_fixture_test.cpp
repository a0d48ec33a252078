#include "calm/model/backbone.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE_TEMPLATE(the_backbone_agrees_with_the_reference, variant, variants_on_devices) {
    constexpr configuration<> C = variant::value;
    using backend = typename variant::backend;
    // Block kernels sum in another order than the reference, so they run in double to exclude rounding.
    using T = std::conditional_t<block_backend<backend>, double, float>;
    fixture const f(variant_name<C>(), "backbone");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    backbone<C, space<backend, T>> model(f.size("vocab_size"));
    allocate(model, values, &gradients);
    load_parameters(parameters_of(model), f);

    auto const tokens = f.integers<token_id>("in/tokens");
    index_t const sequences = f.shape("in/tokens")[0];
    index_t const patches = f.shape("in/tokens")[1] / C.autoencoder.patch_size;
    auto const ids = placed<backend>(tokens);
    auto const s = model.forward(ctx, in_vector<backend>(ids), patches);
    BOOST_TEST(close(copied(s.projected.y), f.floats("out/embedded"), kind::output));
    BOOST_TEST(close(copied(s.y), f.floats("out/hidden"), kind::output));

    // Keys and values are (B, heads, P, head size) in the fixture, (B, P, heads, head size) here.
    constexpr index_t heads = C.num_key_value_heads;
    using calm::detail::get;
    auto const& attended = get<1>(get<0>(get<0>(s.llama.all).layers[0].all).all);  // the attention of the first block
    for (auto const& [name, got] :
         {std::pair("out/keys_layer0", attended.k.y), std::pair("out/values_layer0", attended.v.y)}) {
        auto const all = f.floats(name);
        std::vector<float> want;
        index_t const per_sequence = static_cast<index_t>(all.size()) / sequences;
        for (index_t b = 0; b < sequences; ++b) {
            std::vector<float> const one(all.begin() + b * per_sequence, all.begin() + (b + 1) * per_sequence);
            auto const swapped = swap_leading(one, heads, patches);
            want.insert(want.end(), swapped.begin(), swapped.end());
        }
        BOOST_TEST(close(copied(got), want, kind::output), name);
    }

    auto const cotangent = placed<backend>(f.floats<T>("in/cotangent"));
    model.backward(ctx, s, in_rows<backend, C.hidden_size>(cotangent));
    check_gradients(parameters_of(model), f);

    // Patch by patch through the cache gives equal hidden states.
    auto cache = model.make_cache(sequences, patches);
    std::vector<T> stepwise(static_cast<std::size_t>(s.y.size()));
    constexpr index_t K = C.autoencoder.patch_size;
    for (index_t p = 0; p < patches; ++p) {
        std::vector<token_id> column;
        for (index_t b = 0; b < sequences; ++b)
            column.insert(column.end(), tokens.begin() + (b * patches + p) * K,
                          tokens.begin() + (b * patches + p + 1) * K);
        auto const there = placed<backend>(column);
        auto const h = copied(model.extend(ctx, row_ids<backend>(in_vector<backend>(there)), cache, cache.all()));
        for (index_t b = 0; b < sequences; ++b)
            std::copy_n(h.begin() + b * C.hidden_size, C.hidden_size,
                        stepwise.begin() + (b * patches + p) * C.hidden_size);
    }
    BOOST_TEST(close(stepwise, f.floats("out/hidden"), kind::output));
}
