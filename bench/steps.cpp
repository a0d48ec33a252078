// Training steps as timed by bench/reference/bench.py: forward, backward, clipping and AdamW on one batch of random
// tokens, noise drawn inside; the median of the repeats after two warm-up runs.
//
//     steps [--config tiny text small tiny-k1 tiny-k2 tiny-k8] [--work autoencoder_step calm_step ar_step]
//     [--threads 2] [--repeats 20] [--sequences B] [--patches P] [--samples N] [--muon] [--bf16] [--json]
//
// B, P and N replace the configuration's values in a step of the language model. With --muon, Muon instead of AdamW
// updates the matrices between hidden states. With --bf16, products are computed in bf16. With --json, the output is
// one JSON object per line in the format of bench.py. It adds the fastest and slowest repeat, GFLOP/s, the share of the
// machine's peak, and the memory of the step: as planned by a dry run, and as the growth of the process. The growth is
// exact only if the process runs a single kind of work.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/flops.hpp"
#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/train/detail/peak.hpp"
#include "calm/train/detail/throughput.hpp"
#include "calm/train/optimizer.hpp"
#include "configurations.hpp"
#include "machine.hpp"
#include "random_tokens.hpp"

namespace {

using calm::index_t;

struct options {
    std::vector<std::string> configurations{"tiny"};
    std::vector<std::string> work{"autoencoder_step", "calm_step", "ar_step"};
    int threads = 2;
    int repeats = 20;
    index_t sequences = 0;  // 0: from the configuration, as the next two
    index_t patches = 0;
    index_t samples = 0;
    bool muon = false;
    bool bf16 = false;
    bool json = false;
};

// Measurements of a step.
struct measured {
    bench::spread seconds;
    std::size_t planned = 0;  // bytes
    std::size_t grown = 0;    // bytes
};

bool contains(std::vector<std::string> const& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

void report(options const& o, char const* configuration, char const* work, measured const& m, index_t tokens,
            double flops, double peak) {
    double const seconds = m.seconds.median;
    double const speed = static_cast<double>(tokens) / seconds;
    double const share = calm::share_of_peak(flops, seconds, peak);
    if (o.json)
        std::printf(
            "{\"config\": \"%s\", \"work\": \"%s\", \"device\": \"cpu\", \"dtype\": \"%s\", \"muon\": %s, "
            "\"threads\": %d, "
            "\"seconds\": %.6f, \"fastest\": %.6f, \"slowest\": %.6f, \"tokens\": %lld, \"tokens_per_s\": %.1f, "
            "\"flops\": %.6g, \"gflop_per_s\": %.2f, \"peak_gflop_per_s\": %.2f, \"share_of_peak\": %s, "
            "\"planned_bytes\": %zu, \"grown_bytes\": %zu}\n",
            configuration, work, o.bf16 ? "bf16" : "fp32", o.muon ? "true" : "false", o.threads, seconds,
            m.seconds.lowest, m.seconds.highest, static_cast<long long>(tokens), speed, flops, flops / seconds / 1e9,
            peak / 1e9, (std::isnan(share) ? "null" : std::to_string(share)).c_str(), m.planned, m.grown);
    else
        std::printf(
            "%-7s %-17s %d threads %9.2f ms (%.2f .. %.2f) %9.0f tokens/s %8.1f GFLOP/s %5.1f %% of the peak of "
            "%.0f\n",
            configuration, work, o.threads, seconds * 1e3, m.seconds.lowest * 1e3, m.seconds.highest * 1e3, speed,
            flops / seconds / 1e9, 100 * share, peak / 1e9);
    std::fflush(stdout);
}

calm::context<> context_for(options const& o, std::uint64_t seed = 1) {
    calm::context<> ctx(seed, o.threads);
    if (o.bf16) calm::multiply_in_bf16(ctx);
    return ctx;
}

// The memory of a model in training, and of the process before it was built.
struct memory_of_step {
    calm::arena<> values{"values"};
    calm::arena<> gradients{"gradients"};
    std::size_t before = (bench::forget_peak(), bench::memory_held().now);

    // As counted by a training plan, after a dry run.
    [[nodiscard]] std::size_t planned(calm::context<> const& ctx, calm::arena<> const& optimizer_state) const {
        return values.used() + gradients.used() + optimizer_state.used() + ctx.saved.peak() + ctx.workspace.peak();
    }
    [[nodiscard]] std::size_t grown() const {
        std::size_t const most = bench::memory_held().most;
        return most > before ? most - before : 0;
    }
};

// Repeats a step; its updates of the weights persist, as in training.
template <class Model, class Losses>
measured repeat_step(calm::context<>& ctx, Model& model, memory_of_step const& memory, options const& o,
                     Losses const& loss_and_gradient) {
    calm::adamw optimizer(model, {.muon = o.muon ? 2.0 : 0.0});
    measured m;
    ctx.set_dry_run(true);
    loss_and_gradient();
    optimizer.step(ctx, 3e-4);
    ctx.set_dry_run(false);
    m.planned = memory.planned(ctx, optimizer.state_arena());
    std::vector<double> times;
    for (int i = 0; i < o.repeats + 2; ++i) {
        double const begin = bench::now();
        double const loss = loss_and_gradient();
        optimizer.step(ctx, 3e-4, loss);
        ++ctx.step;
        if (i >= 2) times.push_back(bench::now() - begin);
    }
    m.seconds = bench::spread_of(times);
    m.grown = memory.grown();
    return m;
}

template <calm::model_configuration auto C>
void autoencoder_step(options const& o, char const* name, bench::batch const& b, double peak) {
    memory_of_step memory;
    auto ctx = context_for(o);
    calm::autoencoder<C.autoencoder> model;
    calm::allocate(model, memory.values, &memory.gradients);
    calm::initialise(ctx, model);
    auto const tokens = bench::random_tokens(b.autoencoder_tokens, model.vocabulary());
    calm::vector_view<calm::token_id const> const labels(tokens.data(), calm::extents<calm::dyn>(b.autoencoder_tokens));
    calm::autoencoder_objective const objective;
    auto const m = repeat_step(ctx, model, memory, o, [&] {
        calm::arena_scope const scope(ctx.saved);
        auto const noise = model.draw(ctx, labels, objective.dropout);
        return model.loss_and_gradient(ctx, labels, noise, objective).loss;
    });
    index_t const patches = b.autoencoder_tokens / model.K;
    double const flops =
        calm::flops::train_autoencoder(C.autoencoder, model.vocabulary(), patches) * static_cast<double>(patches);
    report(o, name, "autoencoder_step", m, b.autoencoder_tokens, flops, peak);
}

template <calm::model_configuration auto C>
void calm_step(options const& o, char const* name, bench::batch const& b, double peak) {
    memory_of_step memory;
    auto ctx = context_for(o);
    calm::calm_model<C> model;
    calm::allocate(model.ae_model, memory.values, static_cast<calm::arena<>*>(nullptr));
    calm::allocate(model, memory.values, &memory.gradients);
    calm::initialise(ctx, model.ae_model);
    calm::initialise(ctx, model);
    auto const tokens = bench::random_tokens(b.sequences * b.patches * model.K, model.vocabulary());
    auto const count = static_cast<index_t>(tokens.size());
    calm::vector_view<calm::token_id const> const blocks(tokens.data(), calm::extents<calm::dyn>(count));
    auto const m = repeat_step(ctx, model, memory, o,
                               [&] { return model.loss_and_gradient(ctx, blocks, b.patches, b.objective); });
    double const positions = static_cast<double>(b.sequences * (b.patches - 1));
    double const flops =
        calm::flops::train_calm(C, model.ae_model.vocabulary(), b.sequences, b.patches - 1, b.objective.samples) *
        positions;
    report(o, name, "calm_step", m, count, flops, peak);
}

// The autoregressive model with C's backbone sizes.
template <calm::model_configuration auto C>
void ar_step(options const& o, char const* name, bench::batch const& b, double peak) {
    memory_of_step memory;
    auto ctx = context_for(o);
    constexpr calm::autoregressive_configuration A{.llama = calm::llama_sizes_of(C)};
    calm::autoregressive_model<A> model(C.autoencoder.vocab_size);
    calm::allocate(model, memory.values, &memory.gradients);
    calm::initialise(ctx, model);
    auto const tokens = bench::random_tokens(b.ar_sequences * b.ar_tokens, model.vocabulary());
    auto const count = static_cast<index_t>(tokens.size());
    calm::vector_view<calm::token_id const> const blocks(tokens.data(), calm::extents<calm::dyn>(count));
    auto const m =
        repeat_step(ctx, model, memory, o, [&] { return model.loss_and_gradient(ctx, blocks, b.ar_tokens); });
    double const flops =
        calm::flops::train_autoregressive(A.llama, model.vocabulary(), b.ar_tokens) * static_cast<double>(count);
    report(o, name, "ar_step", m, count, flops, peak);
}

template <calm::model_configuration auto C> void run(options const& o, char const* name, bench::batch b, double peak) {
    if (!contains(o.configurations, name)) return;
    if (o.sequences > 0) b.sequences = o.sequences;
    if (o.patches > 0) b.patches = o.patches;
    if (o.samples > 0) b.objective.samples = o.samples;
    if (contains(o.work, "autoencoder_step")) autoencoder_step<C>(o, name, b, peak);
    if (contains(o.work, "calm_step")) calm_step<C>(o, name, b, peak);
    if (contains(o.work, "ar_step")) ar_step<C>(o, name, b, peak);
}

// Valid option values.
constexpr std::string_view all_configurations[] = {"tiny", "text", "small", "tiny-k1", "tiny-k2", "tiny-k8"};
constexpr std::string_view all_work[] = {"autoencoder_step", "calm_step", "ar_step"};

bool are_among(std::vector<std::string> const& names, auto const& all) {
    return !names.empty() && std::all_of(names.begin(), names.end(), [&](auto const& name) {
        return std::find(std::begin(all), std::end(all), name) != std::end(all);
    });
}

bool read_number(options& o, std::string_view option, int value) {
    if (option == "--threads")
        o.threads = value;
    else if (option == "--repeats")
        o.repeats = value;
    else if (option == "--sequences")
        o.sequences = value;
    else if (option == "--patches")
        o.patches = value;
    else if (option == "--samples")
        o.samples = value;
    else
        return false;
    return value >= (option == "--patches" || option == "--samples" ? 2 : 1);  // a patch to predict, a pair of samples
}

// Returns false if an option or a value is unknown.
bool read(options& o, int argc, char** argv) {
    for (int i = 1; i < argc;) {
        std::string_view const option = argv[i++];
        std::vector<std::string> values;
        while (i < argc && !std::string_view(argv[i]).starts_with("--")) values.emplace_back(argv[i++]);
        if (option == "--config")
            o.configurations = values;
        else if (option == "--work")
            o.work = values;
        else if (option == "--muon" && values.empty())
            o.muon = true;
        else if (option == "--bf16" && values.empty())
            o.bf16 = true;
        else if (option == "--json" && values.empty())
            o.json = true;
        else if (values.size() != 1 || !read_number(o, option, std::atoi(values[0].c_str())))
            return false;
    }
    return are_among(o.configurations, all_configurations) && are_among(o.work, all_work);
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    if (!read(o, argc, argv)) {
        std::fputs("usage: steps [--config tiny text small tiny-k1 tiny-k2 tiny-k8] "
                   "[--work autoencoder_step calm_step ar_step] [--threads 2] [--repeats 20] [--sequences B] "
                   "[--patches P] [--samples N] [--muon] [--bf16] [--json]\n",
                   stderr);
        return 2;
    }
    double const peak = calm::measure_peak(context_for(o, 0), 0.2);
    run<bench::tiny>(o, "tiny", bench::tiny_batch, peak);
    run<bench::text>(o, "text", bench::text_batch, peak);
    run<bench::small>(o, "small", bench::small_batch, peak);
    run<bench::tiny_k1>(o, "tiny-k1", bench::tiny_batch, peak);
    run<bench::tiny_k2>(o, "tiny-k2", bench::tiny_batch, peak);
    run<bench::tiny_k8>(o, "tiny-k8", bench::tiny_batch, peak);
    return 0;
}
