#pragma once
// Machine limits: memory bandwidth (for compute see calm/train/detail/peak.hpp), and the memory held by this process.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calm/tensor/core/context.hpp"
#include "calm/tensor/detail/core/packet_sums.hpp"
#include "times.hpp"

namespace bench {

// Seconds of the fastest call of f; calls it for about `seconds`, at least three times.
template <class F> double fastest(double seconds, F const& f) {
    double best = 1e30;
    double const start = now();
    for (int round = 0; round < 3 || now() - start < seconds; ++round) {
        double const begin = now();
        f();
        best = std::min(best, now() - begin);
    }
    return best;
}

// Bytes per second at which the threads of the context together read a buffer of this size repeatedly: an upper bound
// for passes over weights of that size. Uses large pages if available, and the widest loads.
inline double measure_bandwidth(calm::context<> const& ctx, std::size_t bytes, double seconds = 0.5) {
    using V = calm::detail::vectors_of<float>::native;
    constexpr int chains = 8;                           // to hide the latency of an addition
    constexpr std::size_t page = std::size_t{1} << 21;  // a large page
    constexpr std::size_t part = std::size_t{1} << 18;  // per task of a thread
    std::size_t const size = (bytes + page - 1) / page * page;
    struct release {
        void operator()(std::byte* p) const { std::free(p); }
    };
    std::unique_ptr<std::byte, release> const memory(static_cast<std::byte*>(std::aligned_alloc(page, size)));
    calm::require(memory != nullptr, calm::errc::memory, "bench: expected ", size, " bytes of free memory");
    ::madvise(memory.get(), size, MADV_HUGEPAGE);
    std::memset(memory.get(), 0, size);
    std::vector<float> totals(size / part);  // keeps the compiler from removing the reads
    auto const read = [&](calm::index_t number) {
        auto const i = static_cast<std::size_t>(number);
        std::byte const* const from = memory.get() + i * part;
        V sums[chains] = {};
        for (std::size_t at = 0; at < part; at += chains * sizeof(V))
            calm::detail::unrolled<chains>([&](auto c) __attribute__((always_inline)) {
                V loaded;
                std::memcpy(&loaded, from + at + c * sizeof(V), sizeof(V));
                sums[c] += loaded;
            });
        for (V const& sum : sums) totals[i] += sum[0];
    };
    double const best = fastest(seconds, [&] { ctx.parallel(static_cast<calm::index_t>(totals.size()), read); });
    volatile float const used = totals[0];
    static_cast<void>(used);
    return static_cast<double>(size) / best;
}

// Memory held by this process, in bytes: now, and the maximum since its start or since forget_peak. 0 if the system
// does not report it.
struct held_memory {
    std::size_t now = 0, most = 0;
};
inline held_memory memory_held() {
    held_memory held;
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        for (auto const& [name, bytes] : {std::pair{"VmRSS:", &held.now}, {"VmHWM:", &held.most}})
            if (line.starts_with(name)) *bytes = std::stoull(line.substr(std::strlen(name))) << 10;
    return held;
}
inline void forget_peak() {
    std::ofstream("/proc/self/clear_refs") << '5';
}

}  // namespace bench
