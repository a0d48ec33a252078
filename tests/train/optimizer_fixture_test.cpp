// Ten AdamW steps of both stages compared with the PyTorch reference.

#include "calm/model/calm.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/schedule.hpp"
#include "support/models.hpp"
#include "support/stepped.hpp"

using namespace calm;
using namespace calm::test;

namespace {

// Losses, norms and final parameters of ten steps; loss_of(i) computes the i-th loss and adds its gradients.
template <class Model, class Loss>
void ten_steps(context<typename Model::backend>& ctx, Model& model, fixture const& f, Loss const& loss_of) {
    adamw optimizer(model, {.beta1 = f.real("betas/0"),
                            .beta2 = f.real("betas/1"),
                            .eps = f.real("eps"),
                            .weight_decay = f.real("weight_decay"),
                            .clip = f.real("clip")});
    auto const rate = schedule::constant(f.real("lr"), f.size("warmup"));
    std::vector<double> losses;
    std::vector<double> norms;
    for (index_t i = 0; i < f.size("steps"); ++i) {
        losses.push_back(loss_of(i));
        norms.push_back(stepped(optimizer, ctx, rate(i), losses.back()));
    }
    BOOST_TEST(close(losses, f.floats<double>("out/losses"), kind::loss_of_run));
    BOOST_TEST(close(norms, f.floats<double>("out/grad_norms"), kind::loss_of_run));
    auto compare = [&](std::string const& name, auto& p) {
        BOOST_TEST(close(copied(p.value), f.floats("out/param." + name), kind::weight_of_run), name);
    };
    model.visit(compare);
}

// The i-th of `parts` equal parts of a sequence.
template <class Backend = cpu, class T> numbers<T, Backend> part(std::vector<T> const& all, index_t i, index_t parts) {
    auto const n = static_cast<std::ptrdiff_t>(all.size()) / parts;
    return {all.begin() + i * n, all.begin() + (i + 1) * n};
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(ten_steps_of_the_autoencoder_agree_with_the_reference, variant, variants_on_devices) {
    constexpr configuration<> C = variant::value;
    using backend = typename variant::backend;
    constexpr index_t L = C.autoencoder.latent_size;
    fixture const f(variant_name<C>(), "train_autoencoder");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    autoencoder<C.autoencoder, space<backend>> model(f.size("vocab_size"));
    allocate(model, values, &gradients);
    load_parameters(parameters_of(model), f);

    index_t const steps = f.size("steps");
    auto const tokens = f.integers<token_id>("in/tokens");
    auto const eps = f.floats("in/eps");
    auto shown = tokens;
    auto const kept = f.integers<token_id>("in/keep_token");
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] *= kept[i];
    auto scale = f.integers<float>("in/keep_latent");
    for (float& s : scale) s /= 0.85F;
    ten_steps(ctx, model, f, [&](index_t i) {
        auto const t = part<backend>(tokens, i, steps);
        auto const s = part<backend>(shown, i, steps);
        auto const e = part<backend>(eps, i, steps);
        auto const d = part<backend>(scale, i, steps);
        return model
            .loss_and_gradient(ctx, in_vector<backend>(t),
                               {in_vector<backend>(s), in_rows<backend, L>(e), in_rows<backend, L>(d)}, {})
            .loss;
    });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ten_steps_of_the_language_model_agree_with_the_reference, variant, variants_on_devices) {
    constexpr configuration<> C = variant::value;
    using backend = typename variant::backend;
    constexpr index_t L = C.autoencoder.latent_size;
    fixture const f(variant_name<C>(), "train_calm");
    context<backend> ctx(1, 2);
    arena<backend> values("values");
    arena<backend> gradients("gradients");
    calm_model<C, space<backend>> model(f.size("vocab_size"));
    allocate(model, values, &gradients);
    allocate(model.ae_model, values, static_cast<arena<backend>*>(nullptr));
    load_parameters(parameters_of(model), f);
    load_parameters(frozen_parameters_of(model), f);

    index_t const steps = f.size("steps");
    auto const tokens = f.integers<token_id>("in/tokens");
    auto const noise = f.floats("in/noise");
    auto const eps = f.floats("in/eps");
    index_t const sequences = f.shape("in/tokens")[1];
    index_t const patches = f.shape("in/tokens")[2] / C.autoencoder.patch_size;
    index_t const positions = sequences * (patches - 1);
    energy_objective const objective{
        .samples = f.size("num_samples"), .targets = f.size("num_target_samples"), .beta = f.real("beta")};
    ten_steps(ctx, model, f, [&](index_t i) {
        auto const t = part(tokens, i, steps);
        auto const u = placed<backend>(swap_leading(part(noise, i, steps), objective.samples, positions));
        auto const e = part<backend>(eps, i, steps);
        typename std::decay_t<decltype(model)>::head_type::given_noise const given{
            in_rows<backend, C.head.noise_size>(u),
            {{e.data(), extents<dyn, dyn, dyn>(objective.targets, positions, L)}}};
        arena_scope const saved(ctx.saved);
        return total_of(ctx, [&](auto const& mean) {
            model.loss_and_gradient(ctx, mean, model.prepare(ctx, t, patches), objective, given);
        });
    });
}
