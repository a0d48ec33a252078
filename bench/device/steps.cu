// Training steps as timed by bench/reference/bench.py: forward, backward, clipping and AdamW on one batch of random
// tokens that is copied to the device; noise drawn inside.
//
//     steps [bf16] [profile] tiny|text|calm-m ...
//
// First compares steps of tiny with the block kernels on the host; steps of every configuration must be finite. Steps
// are timed with graphs and with individual kernel launches, which are counted. The first bf16 loss is compared with
// fp32. After the word `bf16` there are no fp32 steps. After the word `profile` each kernel of a step is timed.
// Language models are also trained in bf16 with Muon.

#include "../configurations.hpp"
#include "../random_tokens.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/tensor/detail/device/graph.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"
#include "calm/train/optimizer.hpp"
#include "launched.hpp"
#include "profile.hpp"

namespace {

using namespace bench;

// A language model with a batch; the work of a step except the update.
template <calm::model_configuration auto C, class Backend> struct language_work {
    calm::owned_model<calm::calm_model<C, calm::space<Backend>>> lm{C.autoencoder.vocab_size};
    batch b;
    std::vector<calm::token_id> tokens = random_tokens(b.sequences * b.patches * lm.model.K, C.autoencoder.vocab_size);

    language_work(calm::context<Backend>& ctx, batch const& of_step) : b(of_step) {
        initialise(ctx, lm.model.ae_model);
        initialise(ctx, lm.model);
    }
    // Allocates in ctx.saved.
    auto prepare(calm::context<Backend>& ctx) { return lm.model.prepare(ctx, tokens, b.patches); }
    static auto new_losses(calm::context<Backend>& ctx) { return new_total(ctx); }
    static calm::total_view<Backend> loss_of(calm::total_view<Backend> const& losses) { return losses; }
    // Accumulates gradients.
    void loss_and_gradient(calm::context<Backend>& ctx, auto const& losses, auto const& prepared) {
        lm.model.loss_and_gradient(ctx, losses, prepared, b.objective);
    }
    [[nodiscard]] double flops() const {
        return calm::flops::train_calm(C, C.autoencoder.vocab_size, b.sequences, b.patches - 1, b.objective.samples) *
               static_cast<double>(b.sequences * (b.patches - 1));
    }
};

// The work of a step of the autoencoder, except the update.
template <calm::model_configuration auto C, class Backend> struct autoencoder_work {
    calm::owned_model<calm::autoencoder<C.autoencoder, calm::space<Backend>>> lm{C.autoencoder.vocab_size};
    std::vector<calm::token_id> tokens;

    autoencoder_work(calm::context<Backend>& ctx, batch const& of_step) :
        tokens(random_tokens(of_step.autoencoder_tokens, C.autoencoder.vocab_size)) {
        initialise(ctx, lm.model);
    }
    auto prepare(calm::context<Backend>& ctx) {
        return lm.model.prepare(ctx, tokens, calm::autoencoder_objective().dropout);
    }
    static auto new_losses(calm::context<Backend>& ctx) {
        return ctx.workspace.template take<calm::autoencoder_losses>(calm::extents<1>());
    }
    static calm::total_view<Backend> loss_of(auto const& losses) { return {&losses.data()->loss, calm::extents<1>()}; }
    void loss_and_gradient(calm::context<Backend>& ctx, auto const& losses, auto const& prepared) {
        lm.model.loss_and_gradient(ctx, losses, prepared, {});
    }
    [[nodiscard]] double flops() const {
        index_t const patches = std::ssize(tokens) / C.autoencoder.patch_size;
        return calm::flops::train_autoencoder(C.autoencoder, C.autoencoder.vocab_size, patches) *
               static_cast<double>(patches);
    }
};

// A model's work and its optimizer.
template <class Work, class Backend> struct training {
    calm::context<Backend>& ctx;
    Work work;
    calm::adamw<calm::space<Backend>> optimizer;
    calm::captured_graph<Backend> backward;
    calm::bf16_copies<Backend> copies;

    training(calm::context<Backend>& by, batch const& b, double muon = 0) :
        ctx(by), work(by, b), optimizer(work.lm.model, {.muon = muon}) {
        add_matrices(copies, parameters_of(work.lm.model));
    }
    // Does not wait for the device.
    void step() {
        calm::arena_scope const saved(ctx.saved);
        calm::arena_scope const workspace(ctx.workspace);
        auto const prepared = work.prepare(ctx);
        auto const losses = work.new_losses(ctx);
        {
            auto const of_weights = copies.use(ctx);
            backward(ctx, {}, [&] { work.loss_and_gradient(ctx, losses, prepared); });
        }
        optimizer.step(ctx, 3e-4, work.loss_of(losses));
        ++ctx.step;
    }
    // Runs a step and returns its loss and the norm of its gradients.
    calm::step_outcome outcome() {
        step();
        return optimizer.last_outcome(ctx);
    }
};

// Losses and gradient norms of two steps of tiny.
template <template <calm::model_configuration auto, class> class Work>
void compare_with_host(char const* name, double muon = 0) {
    agree_with_host(name, 5e-3, [muon]<class B>(calm::context<B>& ctx) {
        ctx.step = 0;
        training<Work<tiny, B>, B> small(ctx, {64, 2, 5, {.samples = 2, .targets = 4}, 0, 0}, muon);
        std::vector<float> all;
        for (int i = 0; i < 2; ++i) {
            auto const outcome = small.outcome();
            all.push_back(static_cast<float>(outcome.loss));
            all.push_back(static_cast<float>(outcome.norm));
        }
        return all;
    });
}

struct timing_options {
    bool in_fp32 = true;
    bool profile = false;
};
index_t left = 0;  // operations that fell back to the block kernels

template <template <calm::model_configuration auto, class> class Work, calm::model_configuration auto C>
double time_steps(std::string const& name, batch const& b, bool in_bf16, timing_options const& o, double muon = 0) {
    auto ctx = context_of(in_bf16);
    ctx.uses_graphs = false;
    training<Work<C, device>, device> t(ctx, b, muon);
    double const before = t.outcome().loss;
    auto const launches = static_cast<double>(launches_of(ctx, [&] { t.step(); }));
    auto const by_kernels = time_of(ctx, [&] { t.step(); });
    ctx.uses_graphs = true;
    for (int i = 0; i < 3; ++i) t.step();  // until graphs are captured
    auto const seconds = time_of(ctx, [&] { t.step(); });
    double const after = t.outcome().loss;  // throws if a step was not finite
    auto const tokens = static_cast<double>(t.work.tokens.size());
    print_row(name, {{"ms", seconds.median * 1e3},
                     {"fastest", seconds.lowest * 1e3},
                     {"slowest", seconds.highest * 1e3},
                     {"ms_by_kernels", by_kernels.median * 1e3},
                     {"tokens_per_s", tokens / seconds.median},
                     {"tflop_per_s", t.work.flops() / seconds.median / 1e12},
                     {"launches", launches},
                     {"first_loss", before},
                     {"last_loss", after}});
    left += left_by(ctx);
    if (o.profile) print_profile(ctx, name, [&] { t.step(); });
    return before;
}
template <template <calm::model_configuration auto, class> class Work, calm::model_configuration auto C>
void time_steps(std::string const& work, batch const& b, timing_options const& o) {
    double const in_fp32 = o.in_fp32 ? time_steps<Work, C>(work + ", fp32", b, false, o) : NAN;
    double const in_bf16 = time_steps<Work, C>(work + ", bf16", b, true, o);
    if (o.in_fp32)
        agree(work + ", bf16, first loss beside fp32", std::abs(in_bf16 - in_fp32) / std::abs(in_fp32), 0.02);
}

template <calm::model_configuration auto C> void time_both(std::string const& name, batch b, timing_options const& o) {
    if (is_emulated) b = {64, 2, 5, {.samples = 2, .targets = 4}, 0, 0};
    time_steps<language_work, C>(name + ", `calm_step`", b, o);
    time_steps<autoencoder_work, C>(name + ", `autoencoder_step`", b, o);
    time_steps<language_work, C>(name + ", `calm_step`, Muon, bf16", b, true, o, 2);
}

bool time_configuration(std::string_view name, timing_options const& o) {
    if (name == "tiny") return time_both<tiny>("tiny", tiny_batch, o), true;
#ifdef __CUDACC__
    if (name == "text") return time_both<text>("text", text_batch, o), true;
    if (name == "calm-m") return time_both<calm_m>("calm-m", calm_m_batch, o), true;
#endif
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    return run([&] {
        compare_with_host<language_work>("a step of tiny");
        compare_with_host<language_work>("a step of tiny with Muon", 2);
        compare_with_host<autoencoder_work>("a step of tiny's autoencoder");
        timing_options o;
        for (std::string_view const word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
            if (word == "bf16")
                o.in_fp32 = false;
            else if (word == "profile")
                o.profile = true;
            else
                calm::require(time_configuration(word, o), calm::errc::usage,
                              "steps: expected bf16, profile, tiny, text or calm-m, the emulated device tiny alone, "
                              "found ",
                              word);
        }
        left_nothing("steps", left);
    });
}
