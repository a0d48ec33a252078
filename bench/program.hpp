#pragma once
// A benchmark program: Google Benchmark's options and --threads N (default 2). Times are wall-clock times, because the
// threads of one call work together.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "calm/train/detail/throughput.hpp"
#include "machine.hpp"

namespace bench {

// Mean seconds of f() over the iterations of `state`.
template <class F> double measure(benchmark::State& state, F const& f) {
    f();  // warms up caches and arenas
    double total = 0;
    for (auto _ : state) {
        double const begin = now();
        f();
        benchmark::ClobberMemory();
        double const seconds = now() - begin;
        state.SetIterationTime(seconds);
        total += seconds;
    }
    return total / static_cast<double>(state.iterations());
}

inline void report_flops(benchmark::State& state, double flops, double seconds, double peak) {
    state.counters["GFLOP/s"] = flops / seconds / 1e9;
    state.counters["%peak"] = 100 * calm::share_of_peak(flops, seconds, peak);  // NaN if the peak is unknown
}
inline void report_bytes(benchmark::State& state, double bytes, double seconds) {
    state.counters["GB/s"] = bytes / seconds / 1e9;
}

// Registers a benchmark f(state) that is timed by measure().
template <class F> void add(std::string const& name, F const& f) {
    benchmark::RegisterBenchmark(name.c_str(), f)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

// Runs the benchmarks that `declare(threads)` adds.
template <class F> int run(int argc, char** argv, F const& declare) {
    int threads = 2;
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--threads" && i + 1 < argc)
            threads = std::atoi(argv[++i]);
        else
            argv[kept++] = argv[i];
    }
    argc = kept;
    benchmark::Initialize(&argc, argv);
    if (threads < 1 || benchmark::ReportUnrecognizedArguments(argc, argv)) {
        std::fputs("expected --threads N with N of at least 1, and options of Google Benchmark (--help)\n", stderr);
        return 2;
    }
    benchmark::AddCustomContext("threads", std::to_string(threads));
    declare(threads);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

}  // namespace bench
