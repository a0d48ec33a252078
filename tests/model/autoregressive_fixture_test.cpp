// The autoregressive model and phase 1 of patch-level training against the PyTorch reference.
#include "calm/model/autoregressive.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t fixture_patch = 4;  // of patch_level, independent of the configuration

// An autoregressive model on a device with the parameters of a fixture. Block kernels sum in another order than the
// reference, so they run in double to exclude rounding from the comparison.
template <class Variant> struct loaded {
    using backend = typename Variant::backend;
    using T = std::conditional_t<block_backend<backend>, double, float>;
    static constexpr autoregressive_configuration C{.llama = llama_sizes_of(Variant::value)};
    fixture f;
    context<backend> ctx{1, 2};
    arena<backend> values{"values"};
    arena<backend> gradients{"gradients"};
    autoregressive_model<C, space<backend, T>> model;
    numbers<token_id, backend> tokens;
    index_t sequences, length;

    explicit loaded(char const* name) :
        f(variant_name<Variant::value>(), name), model(f.size("vocab_size")), tokens(f.integers<token_id>("in/tokens")),
        sequences(f.shape("in/tokens")[0]), length(f.shape("in/tokens")[1]) {
        allocate(model, values, &gradients);
        load_parameters(parameters_of(model), f);
    }
    auto ids() const { return in_vector<backend>(tokens); }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_autoregressive_model_agrees_with_the_reference, variant, variants_on_devices) {
    loaded<variant> m("autoregressive");
    using T = typename loaded<variant>::T;
    using backend = typename variant::backend;
    constexpr index_t D = loaded<variant>::C.llama.hidden_size;
    auto const hidden = m.model.forward(m.ctx, m.ids(), m.length).y;
    numbers<T, backend> logits(static_cast<std::size_t>(m.tokens.size()) *
                               static_cast<std::size_t>(m.model.vocabulary()));
    extents<dyn, dyn> const shape(static_cast<index_t>(m.tokens.size()), m.model.vocabulary());
    m.model.logits(m.ctx, {logits.data(), shape}, hidden);
    BOOST_TEST(close(copied(logits), m.f.floats("out/logits"), kind::output));

    double const loss = m.model.loss_and_gradient(m.ctx, m.ids(), m.length);
    BOOST_TEST(loss == m.f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    check_gradients(parameters_of(m.model), m.f);

    // Token by token through the cache gives equal hidden states.
    auto cache = m.model.make_cache(m.sequences, m.length);
    std::vector<T> stepwise(static_cast<std::size_t>(hidden.size()));
    for (index_t p = 0; p < m.length; ++p) {
        numbers<token_id, backend> column(static_cast<std::size_t>(m.sequences));
        for (std::size_t b = 0; b < column.size(); ++b)
            column[b] = m.tokens[b * static_cast<std::size_t>(m.length) + static_cast<std::size_t>(p)];
        auto const h = copied(m.model.extend(m.ctx, in_vector<backend>(column), cache, cache.all()));
        for (index_t b = 0; b < m.sequences; ++b)
            std::copy_n(h.begin() + b * D, D, stepwise.begin() + (b * m.length + p) * D);
    }
    auto const again = m.model.forward(m.ctx, m.ids(), m.length).y;
    BOOST_TEST(close(stepwise, copied(again), kind::output));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(patch_level_training_agrees_with_the_reference, variant, variants_on_devices) {
    loaded<variant> m("patch_level");
    double const loss = m.model.loss_and_gradient(m.ctx, m.ids(), m.length / fixture_patch, fixture_patch);
    BOOST_TEST(loss == m.f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    check_gradients(parameters_of(m.model), m.f);
}

// Two steps with weight 0.5 equal one step: gradients accumulate with their weights.
BOOST_AUTO_TEST_CASE(weights_scale_gradients) {
    loaded<variant_on<base_variant, cpu>> once("autoregressive"), twice("autoregressive");
    once.model.loss_and_gradient(once.ctx, once.ids(), once.length);
    for (int i = 0; i < 2; ++i) twice.model.loss_and_gradient(twice.ctx, twice.ids(), twice.length, 1, 0.5);
    auto const a = parameters_of(once.model), b = parameters_of(twice.model);
    for (std::size_t i = 0; i < a.size(); ++i)
        BOOST_TEST(close(span_of(b[i].grad), span_of(a[i].grad), kind::gradient), a[i].name);
}

// A tied model equals the untied one with equal tables; its table's gradient is the sum of both.
BOOST_AUTO_TEST_CASE(a_tied_table_has_the_gradients_of_both_places) {
    loaded<variant_on<base_variant, cpu>> untied("autoregressive");
    constexpr autoregressive_configuration C{.llama = llama_sizes_of(base), .tie_word_embeddings = true};
    owned_model<autoregressive_model<C>> tied(untied.model.vocabulary());
    load_parameters(parameters_of(tied.model), untied.f);
    auto const& table = untied.model.embed_tokens.weight;
    auto const& head = untied.model.lm_head.weight;
    std::copy_n(table.value.data(), table.value.size(), head.value.data());
    double const want = untied.model.loss_and_gradient(untied.ctx, untied.ids(), untied.length);
    double const loss = tied.model.loss_and_gradient(untied.ctx, untied.ids(), untied.length);
    BOOST_TEST(loss == want, boost::test_tools::tolerance(1e-6));
    std::vector<float> both(table.grad.data(), table.grad.data() + table.grad.size());
    for (std::size_t i = 0; i < both.size(); ++i) both[i] += head.grad.data()[i];
    BOOST_TEST(close(span_of(tied.model.embed_tokens.weight.grad), both, kind::gradient));
    BOOST_TEST(count_parameters(tied.model) + table.value.size() == count_parameters(untied.model));
}
