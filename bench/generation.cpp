// Generation with random weights after a prompt of 16 patches: milliseconds per patch of a text, by the number of texts
// in parallel and of draws per patch. One draw is T = 1; several are the batch rule at T = 1/2 with a pool of that
// size.
//
//     generation [--config tiny text small] [--threads 2] [--texts 1 32] [--draws 1 31 200] [--repeats 5] [--json]
//     generation --bf16 --int8 [--config tiny text small] [--threads 2] [--repeats 5] [--json]
//
// Also prints a lower bound at T = 1 for one text: the time to read all multiplied weights once per patch at this
// machine's bandwidth. Numbers of draws are measured alternately. --bf16 and --int8 measure one text at T = 1 with
// weights in bf16 and in int8, alternating with fp32. --json prints one JSON object per line.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "calm/tensor/ops/int8_products.hpp"
#include "configurations.hpp"
#include "generation.hpp"
#include "machine.hpp"

namespace {

using calm::index_t;
constexpr index_t most_patches = 32;  // per repeat
constexpr double repeat_seconds = 0.1;

struct options {
    std::vector<std::string> configurations{"tiny"};
    std::vector<index_t> texts{1, 32};
    std::vector<index_t> draws{1, 31, 200};
    int threads = 2;
    int repeats = 5;
    bool in_bf16 = false;
    bool in_int8 = false;
    bool json = false;
};

// Measurements for one number of draws.
struct measured {
    bench::spread milliseconds;  // per patch of a text
    bench::spread times_first;   // relative to the first number of draws, measured just before
};

// Measures each number of draws, alternately.
template <class Model>
std::vector<measured> measure(calm::context<>& ctx, Model const& model, options const& o, index_t texts) {
    std::vector<std::unique_ptr<bench::writing<Model>>> all;
    std::vector<index_t> each;  // patches per repeat
    for (index_t const draws : o.draws) {
        all.push_back(std::make_unique<bench::writing<Model>>(ctx, model, texts, draws, 2 + o.repeats * most_patches));
        all.back()->patch();  // warms up caches and arenas
        double const begin = bench::now();
        all.back()->patch();
        double const patches = repeat_seconds / (bench::now() - begin);
        each.push_back(std::clamp(static_cast<index_t>(patches), index_t{1}, most_patches));
    }
    std::vector<std::vector<double>> times(all.size()), ratios(all.size());
    for (int i = 0; i < o.repeats; ++i)
        for (std::size_t d = 0; d < all.size(); ++d) {
            double const begin = bench::now();
            for (index_t patch = 0; patch < each[d]; ++patch) all[d]->patch();
            times[d].push_back(1e3 * (bench::now() - begin) / static_cast<double>(each[d] * texts));
            ratios[d].push_back(times[d].back() / times[0].back());
        }
    std::vector<measured> found;
    for (std::size_t d = 0; d < all.size(); ++d)
        found.push_back({bench::spread_of(times[d]), bench::spread_of(ratios[d])});
    return found;
}

// Milliseconds per patch of one text at T = 1 with weights of another type, and the speed-up over fp32 weights,
// measured alternately.
template <class Wide, class Narrow>
void compare(Wide& in_fp32, Narrow& narrow, options const& o, char const* name, char const* type) {
    auto const time_of = [](auto& text) {
        double const begin = bench::now();
        for (index_t patch = 0; patch < most_patches; ++patch) text.patch();
        return 1e3 * (bench::now() - begin) / most_patches;
    };
    in_fp32.patch();
    narrow.patch();
    std::vector<double> times, ratios;
    for (int i = 0; i < o.repeats; ++i) {
        double const plain = time_of(in_fp32);
        times.push_back(time_of(narrow));
        ratios.push_back(plain / times.back());
    }
    auto const ms = bench::spread_of(times), faster = bench::spread_of(ratios);
    std::printf(o.json ? "{\"config\": \"%s\", \"threads\": %d, \"weights\": \"%s\", \"ms\": [%.5f, %.5f, %.5f], "
                         "\"times_as_fast\": [%.4f, %.4f, %.4f]}\n"
                       : "%-6s %d threads, weights in %s %9.3f ms per patch (%.3f .. %.3f), %.2f times the speed "
                         "of fp32 (%.2f .. %.2f)\n",
                name, o.threads, type, ms.median, ms.lowest, ms.highest, faster.median, faster.lowest, faster.highest);
    std::fflush(stdout);
}

// A model with the values of another one.
template <class Narrow, class Model> auto copied(calm::context<>& ctx, Model& model, index_t vocabulary) {
    auto made = std::make_unique<calm::owned_model<Narrow>>(vocabulary, calm::model_mode::inference);
    calm::copy_parameters(ctx, calm::parameters_of(made->model), calm::parameters_of(model));
    calm::copy_parameters(ctx, calm::frozen_parameters_of(made->model), calm::frozen_parameters_of(model));
    return made;
}

template <calm::model_configuration auto C>
void beside_fp32(calm::context<>& ctx, calm::calm_model<C>& model, options const& o, char const* name) {
    using wide = calm::calm_model<C>;
    index_t const room = 2 + o.repeats * most_patches;
    bench::writing<wide> in_fp32(ctx, model, 1, 1, 2 * room);
    if (o.in_bf16) {
        using narrow = calm::calm_model<C, calm::bf16_weights>;
        auto const lm = copied<narrow>(ctx, model, C.autoencoder.vocab_size);
        bench::writing<narrow> in_bf16(ctx, lm->model, 1, 1, room);
        compare(in_fp32, in_bf16, o, name, "bf16");
    }
    if (o.in_int8) {
        auto const lm = copied<wide>(ctx, model, C.autoencoder.vocab_size);
        calm::int8_weights weights;
        calm::context<> own(1, o.threads);
        calm::use_int8_weights(own, weights);
        auto all = calm::parameters_of(lm->model);
        for (auto& p : calm::frozen_parameters_of(lm->model)) all.push_back(p);
        for (auto const& p : all)
            if (calm::int8_weights::takes(p.shape)) weights.add(p.value.data(), p.shape[0], p.shape[1]);
        bench::writing<wide> in_int8(own, lm->model, 1, 1, room);
        compare(in_fp32, in_int8, o, name, "int8");
    }
}

template <calm::model_configuration auto C> void run(options const& o, char const* name) {
    if (std::find(o.configurations.begin(), o.configurations.end(), name) == o.configurations.end()) return;
    calm::context<> ctx(1, o.threads);
    calm::owned_model<calm::calm_model<C>> lm(C.autoencoder.vocab_size, calm::model_mode::inference);
    calm::initialise(ctx, lm.model.ae_model);
    calm::initialise(ctx, lm.model);
    bench::fill_zeros(ctx, lm.model);
    if (o.in_bf16 || o.in_int8) return beside_fp32<C>(ctx, lm.model, o, name);
    std::size_t const bytes = bench::bytes_of_a_patch(lm.model);
    double const bandwidth = bench::measure_bandwidth(ctx, bytes);
    for (index_t const texts : o.texts) {
        auto const found = measure(ctx, lm.model, o, texts);
        for (std::size_t d = 0; d < found.size(); ++d) {
            auto const& [ms, times] = found[d];
            std::printf(
                o.json ? "{\"config\": \"%s\", \"threads\": %d, \"texts\": %lld, \"draws\": %lld, \"ms\": [%.5f, %.5f, "
                         "%.5f], \"times_first\": [%.4f, %.4f, %.4f], \"streamed_bytes\": %zu, \"bytes_per_s\": %.5g}\n"
                       : "%-6s %d threads %3lld texts %4lld draws %9.3f ms per patch (%.3f .. %.3f), %.2f times the "
                         "first (%.2f .. %.2f); to read: %zu bytes at %.3g per second\n",
                name, o.threads, static_cast<long long>(texts), static_cast<long long>(o.draws[d]), ms.median,
                ms.lowest, ms.highest, times.median, times.lowest, times.highest, bytes, bandwidth);
            std::fflush(stdout);
        }
    }
}

// Returns false if an option or a value is unknown.
bool read(options& o, int argc, char** argv) {
    for (int i = 1; i < argc;) {
        std::string_view const option = argv[i++];
        std::vector<std::string> values;
        while (i < argc && !std::string_view(argv[i]).starts_with("--")) values.emplace_back(argv[i++]);
        std::vector<index_t> numbers;
        for (auto const& value : values) numbers.push_back(std::atoi(value.c_str()));
        bool const positive =
            !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [](index_t n) { return n >= 1; });
        if (option == "--config")
            o.configurations = values;
        else if (option == "--json" && values.empty())
            o.json = true;
        else if (option == "--bf16" && values.empty())
            o.in_bf16 = true;
        else if (option == "--int8" && values.empty())
            o.in_int8 = true;
        else if (option == "--texts" && positive)
            o.texts = numbers;
        else if (option == "--draws" && positive)
            o.draws = numbers;
        else if (option == "--threads" && positive)
            o.threads = static_cast<int>(numbers.front());
        else if (option == "--repeats" && positive)
            o.repeats = static_cast<int>(numbers.front());
        else
            return false;
    }
    return std::all_of(o.configurations.begin(), o.configurations.end(),
                       [](auto const& name) { return name == "tiny" || name == "text" || name == "small"; });
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    if (!read(o, argc, argv)) {
        std::fputs("usage: generation [--config tiny text small] [--threads 2] [--texts 1 32] [--draws 1 31 200] "
                   "[--repeats 5] [--bf16] [--int8] [--json]\n",
                   stderr);
        return 2;
    }
    run<bench::tiny>(o, "tiny");
    run<bench::text>(o, "text");
    run<bench::small>(o, "small");
    return 0;
}
