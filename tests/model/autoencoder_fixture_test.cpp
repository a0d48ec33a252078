#include "calm/model/autoencoder.hpp"
#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE_TEMPLATE(the_autoencoder_agrees_with_the_reference, variant, variants_on_devices) {
    constexpr configuration<> C = variant::value;
    using backend = typename variant::backend;
    constexpr index_t L = C.autoencoder.latent_size;
    fixture const f(variant_name<C>(), "autoencoder");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    autoencoder<C.autoencoder, space<backend>> model(f.size("vocab_size"));
    allocate(model, values, &gradients);
    load_parameters(parameters_of(model), f);
    auto const latents = [](auto const& x) { return in_rows<backend, L>(x); };
    auto const ids = [](auto const& x) { return in_vector<backend>(x); };

    auto const tokens = placed<backend>(f.integers<token_id>("in/tokens"));
    auto const e = model.posterior(ctx, ids(tokens));
    BOOST_TEST(close(copied(e.mean), f.floats("out/mean"), kind::output));
    BOOST_TEST(close(copied(e.log_std), f.floats("out/log_std"), kind::output));

    auto const z = placed<backend>(f.floats("in/z"));
    numbers<token_id, backend> decoded(tokens.size());
    model.decode_tokens(ctx, out_vector<backend>(decoded), latents(z));
    BOOST_TEST(copied(decoded) == f.integers<token_id>("out/decoded_tokens"));

    auto const kept = f.integers<token_id>("in/keep_token");
    auto shown = tokens;
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] *= kept[i];
    auto const eps = placed<backend>(f.floats("in/eps"));
    auto scale = placed<backend>(f.integers<float>("in/keep_latent"));
    for (float& s : scale) s /= 0.85F;
    auto const losses = model.loss_and_gradient(ctx, ids(tokens), {ids(shown), latents(eps), latents(scale)}, {});
    BOOST_TEST(losses.loss == f.scalar("out/loss"), boost::test_tools::tolerance(1e-5));
    BOOST_TEST(losses.cross_entropy == f.scalar("out/cross_entropy"), boost::test_tools::tolerance(1e-5));
    BOOST_TEST(losses.kl == f.scalar("out/kl"), boost::test_tools::tolerance(1e-5));
    check_gradients(parameters_of(model), f);
}
