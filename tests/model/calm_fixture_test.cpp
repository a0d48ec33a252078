#include "calm/model/calm.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// The reference has noise (N, R, S) and samples (N, R, L). Ours keep the N samples of each position together.
template <class Head> std::vector<float> noise_of(fixture const& f, index_t positions) {
    auto const noise = f.floats("in/noise");
    return swap_leading(noise, static_cast<index_t>(noise.size()) / positions / Head::S, positions);
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_energy_head_agrees_with_the_reference, variant, variants_on_devices) {
    constexpr configuration<> C = variant::value;
    using backend = typename variant::backend;
    using head = energy_head<C, space<backend>>;
    fixture const f(variant_name<C>(), "head_energy");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    head model;
    allocate(model, values, &gradients);
    load_parameters(parameters_of(model), f);

    auto const hidden = placed<backend>(f.floats("in/hidden"));
    auto const positions = f.shape("in/hidden")[0];
    auto const samples = f.size("num_samples");
    auto const noise = placed<backend>(noise_of<head>(f, positions));
    auto const s = model.forward(ctx, in_rows<backend, head::D>(hidden), in_rows<backend, head::S>(noise));
    BOOST_TEST(close(copied(s.y), swap_leading(f.floats("out/samples"), samples, positions), kind::output));

    auto const cotangent = placed<backend>(swap_leading(f.floats("in/cotangent"), samples, positions));
    numbers<float, backend> dhidden(hidden.size());
    model.backward(ctx, s, in_rows<backend, head::L>(cotangent), out_rows<backend, head::D>(dhidden));
    BOOST_TEST(close(copied(dhidden), f.floats("grad/hidden"), kind::gradient));
    check_gradients(parameters_of(model), f);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_whole_model_agrees_with_the_reference, variant, variants_on_devices) {
    constexpr configuration<> C = variant::value;
    using backend = typename variant::backend;
    using model_type = calm_model<C, space<backend>>;
    using head = typename model_type::head_type;
    constexpr index_t K = model_type::K;
    fixture const f(variant_name<C>(), "calm");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    model_type model(f.size("vocab_size"));
    allocate(model, values, &gradients);
    allocate(model.ae_model, values, static_cast<arena<backend>*>(nullptr));
    load_parameters(parameters_of(model), f);
    load_parameters(frozen_parameters_of(model), f);

    auto const tokens = f.integers<token_id>("in/tokens");
    index_t const patches = f.shape("in/tokens")[1] / K;
    index_t const positions = f.shape("in/tokens")[0] * (patches - 1);
    auto const samples = f.size("num_samples");
    auto const noise = placed<backend>(noise_of<head>(f, positions));
    auto const eps = placed<backend>(f.floats("in/eps"));
    energy_objective const objective{
        .samples = samples, .targets = f.size("num_target_samples"), .beta = f.real("beta")};
    auto const loss = total_of(ctx, [&](auto const& mean) {
        model.loss_and_gradient(
            ctx, mean, model.prepare(ctx, tokens, patches), objective,
            typename head::given_noise{in_rows<backend, head::S>(noise),
                                       {{eps.data(), extents<dyn, dyn, dyn>(objective.targets, positions, head::L)}}});
    });
    BOOST_TEST(loss == f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    check_gradients(parameters_of(model), f);

    auto const there = placed<backend>(tokens);
    auto const t = shift_tokens(ctx, in_vector<backend>(there), patches, C.autoencoder.patch_size);
    auto const hidden = model.transformer.forward(ctx, t.inputs, patches - 1).y;
    auto const s = model.generator.forward(ctx, hidden, in_rows<backend, head::S>(noise));
    BOOST_TEST(close(copied(s.y), swap_leading(f.floats("out/samples"), samples, positions), kind::output));
    numbers<token_id, backend> decoded(static_cast<std::size_t>(positions * samples * K));
    model.ae_model.decode_tokens(ctx, out_vector<backend>(decoded), s.y);
    BOOST_TEST(copied(decoded) == swap_leading(f.integers<token_id>("out/decoded"), samples, positions));
}
