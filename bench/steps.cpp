// Training steps as the oracle's bench.py times them: forward, backward, clipping and AdamW on one batch of random
// tokens, noise drawn inside, the median of the repeats after two warm-up runs.
//
//     steps [--config tiny text small] [--work autoencoder_step calm_step ar_step] [--threads 2] [--repeats 20]
//     [--json]
//
// --json prints one JSON object a line in the shape of bench.py, with GFLOP/s and the share of the machine's peak
// added.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/flops.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/peak.hpp"
#include "calm/train/throughput.hpp"
#include "configurations.hpp"
#include "machine.hpp"

namespace {

using calm::index_t;

struct options {
    std::vector<std::string> configurations{"tiny"};
    std::vector<std::string> work{"autoencoder_step", "calm_step", "ar_step"};
    int threads = 2;
    int repeats = 20;
    bool json = false;
};

bool contains(std::vector<std::string> const& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<calm::token_id> random_tokens(index_t count, index_t vocabulary) {
    std::vector<calm::token_id> tokens;
    calm::random_sequence draws(calm::key{1, calm::stream::story, 0});
    for (index_t i = 0; i < count; ++i)
        tokens.push_back(static_cast<calm::token_id>(draws.below(static_cast<std::uint32_t>(vocabulary))));
    return tokens;
}

void report(options const& o, char const* configuration, char const* work, double seconds, index_t tokens, double flops,
            double peak) {
    double const speed = static_cast<double>(tokens) / seconds;
    double const share = calm::share_of_peak(flops, seconds, peak);
    if (o.json)
        std::printf("{\"config\": \"%s\", \"work\": \"%s\", \"device\": \"cpu\", \"dtype\": \"fp32\", \"threads\": %d, "
                    "\"seconds\": %.6f, \"tokens\": %lld, \"tokens_per_s\": %.1f, \"gflop_per_s\": %.2f, "
                    "\"peak_gflop_per_s\": %.2f, \"share_of_peak\": %s}\n",
                    configuration, work, o.threads, seconds, static_cast<long long>(tokens), speed,
                    flops / seconds / 1e9, peak / 1e9, (std::isnan(share) ? "null" : std::to_string(share)).c_str());
    else
        std::printf("%-6s %-17s %d threads %9.2f ms %9.0f tokens/s %8.1f GFLOP/s %5.1f %% of the peak of %.0f\n",
                    configuration, work, o.threads, seconds * 1e3, speed, flops / seconds / 1e9, 100 * share,
                    peak / 1e9);
    std::fflush(stdout);
}

// Seconds of the median step; what a step does to the weights stays, as in training.
template <class Model, class Losses>
double median_step(calm::context<>& ctx, Model& model, int repeats, Losses const& loss_and_gradient) {
    calm::adamw optimizer(model);
    std::vector<double> times;
    for (int i = 0; i < repeats + 2; ++i) {
        double const begin = bench::now();
        double const loss = loss_and_gradient();
        optimizer.step(ctx, 3e-4, loss);
        ++ctx.step;
        if (i >= 2) times.push_back(bench::now() - begin);
    }
    std::sort(times.begin(), times.end());
    std::size_t const middle = times.size() / 2;
    return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

template <calm::model_configuration auto C>
void autoencoder_step(options const& o, char const* name, bench::batch const& b, double peak) {
    calm::context<> ctx(1, o.threads);
    calm::arena<> values("values");
    calm::arena<> gradients("gradients");
    calm::autoencoder<C.autoencoder> model;
    calm::allocate(model, values, &gradients);
    calm::initialise(ctx, model);
    auto const tokens = random_tokens(b.autoencoder_tokens, model.vocabulary());
    calm::vector_view<calm::token_id const> const labels(tokens.data(), calm::extents<calm::dyn>(b.autoencoder_tokens));
    calm::autoencoder_objective const objective;
    double const seconds = median_step(ctx, model, o.repeats, [&] {
        calm::arena_scope const scope(ctx.saved);
        auto const noise = model.draw(ctx, labels, objective.dropout);
        return model.loss_and_gradient(ctx, labels, noise, objective).loss;
    });
    index_t const patches = b.autoencoder_tokens / model.K;
    double const flops =
        calm::flops::train_autoencoder(C.autoencoder, model.vocabulary(), patches) * static_cast<double>(patches);
    report(o, name, "autoencoder_step", seconds, b.autoencoder_tokens, flops, peak);
}

template <calm::model_configuration auto C>
void calm_step(options const& o, char const* name, bench::batch const& b, double peak) {
    calm::context<> ctx(1, o.threads);
    calm::arena<> values("values");
    calm::arena<> gradients("gradients");
    calm::calm_model<C> model;
    calm::allocate(model.ae_model, values, static_cast<calm::arena<>*>(nullptr));
    calm::allocate(model, values, &gradients);
    calm::initialise(ctx, model.ae_model);
    calm::initialise(ctx, model);
    auto const tokens = random_tokens(b.sequences * b.patches * model.K, model.vocabulary());
    auto const count = static_cast<index_t>(tokens.size());
    calm::vector_view<calm::token_id const> const blocks(tokens.data(), calm::extents<calm::dyn>(count));
    double const seconds = median_step(ctx, model, o.repeats,
                                       [&] { return model.loss_and_gradient(ctx, blocks, b.patches, b.objective); });
    double const positions = static_cast<double>(b.sequences * (b.patches - 1));
    double const flops =
        calm::flops::train_calm(C, model.ae_model.vocabulary(), b.sequences, b.patches - 1, b.objective.samples) *
        positions;
    report(o, name, "calm_step", seconds, count, flops, peak);
}

// The model of C's backbone on tokens.
template <calm::model_configuration auto C>
void ar_step(options const& o, char const* name, bench::batch const& b, double peak) {
    calm::context<> ctx(1, o.threads);
    calm::arena<> values("values");
    calm::arena<> gradients("gradients");
    constexpr calm::autoregressive_configuration A{.llama = calm::llama_sizes_of(C)};
    calm::autoregressive_model<A> model(C.autoencoder.vocab_size);
    calm::allocate(model, values, &gradients);
    calm::initialise(ctx, model);
    auto const tokens = random_tokens(b.ar_sequences * b.ar_tokens, model.vocabulary());
    auto const count = static_cast<index_t>(tokens.size());
    calm::vector_view<calm::token_id const> const blocks(tokens.data(), calm::extents<calm::dyn>(count));
    double const seconds =
        median_step(ctx, model, o.repeats, [&] { return model.loss_and_gradient(ctx, blocks, b.ar_tokens); });
    double const flops =
        calm::flops::train_autoregressive(A.llama, model.vocabulary(), b.ar_tokens) * static_cast<double>(count);
    report(o, name, "ar_step", seconds, count, flops, peak);
}

template <calm::model_configuration auto C>
void run(options const& o, char const* name, bench::batch const& b, double peak) {
    if (!contains(o.configurations, name)) return;
    if (contains(o.work, "autoencoder_step")) autoencoder_step<C>(o, name, b, peak);
    if (contains(o.work, "calm_step")) calm_step<C>(o, name, b, peak);
    if (contains(o.work, "ar_step")) ar_step<C>(o, name, b, peak);
}

// False where an option or a value is unknown.
bool read(options& o, int argc, char** argv) {
    for (int i = 1; i < argc;) {
        std::string_view const option = argv[i++];
        std::vector<std::string> values;
        while (i < argc && !std::string_view(argv[i]).starts_with("--")) values.emplace_back(argv[i++]);
        if (option == "--config")
            o.configurations = values;
        else if (option == "--work")
            o.work = values;
        else if (option == "--threads" && values.size() == 1)
            o.threads = std::atoi(values[0].c_str());
        else if (option == "--repeats" && values.size() == 1)
            o.repeats = std::atoi(values[0].c_str());
        else if (option == "--json" && values.empty())
            o.json = true;
        else
            return false;
    }
    for (auto const& name : o.configurations)
        if (name != "tiny" && name != "text" && name != "small") return false;
    for (auto const& name : o.work)
        if (name != "autoencoder_step" && name != "calm_step" && name != "ar_step") return false;
    return o.threads >= 1 && o.repeats >= 1 && !o.configurations.empty() && !o.work.empty();
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    if (!read(o, argc, argv)) {
        std::fputs("usage: steps [--config tiny text small] [--work autoencoder_step calm_step ar_step] "
                   "[--threads 2] [--repeats 20] [--json]\n",
                   stderr);
        return 2;
    }
    double const peak = calm::measure_peak(calm::context<>(0, o.threads), 0.2);
    run<bench::tiny>(o, "tiny", bench::tiny_batch, peak);
    run<bench::text>(o, "text", bench::text_batch, peak);
    run<bench::small>(o, "small", bench::small_batch, peak);
    return 0;
}
