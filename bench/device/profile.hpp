#pragma once
// Times the kernels of some work on a GPU by an event before each. Prints one object per kind of kernel, longest first:
// name, count, blocks (for a product: elements of the result) and, for a product, k. Prints nothing on the emulated
// device.

#include <cstdint>
#include <map>
#include <tuple>

#include "device.hpp"

namespace bench {

#ifdef __CUDACC__
template <class F> void print_profile(device_context& ctx, std::string const& work, F const& f) {
    struct launched {
        std::string name;
        index_t size;
        std::uint64_t more;
        cudaEvent_t begin;
    };
    std::vector<launched> all;
    auto& queue = ctx.order();
    auto const mark = [&](char const* name, index_t size, std::uint64_t more) {
        launched one{name, size, more, nullptr};
        calm::detail::check_cuda(cudaEventCreate(&one.begin), "opening an event");
        calm::detail::check_cuda(cudaEventRecord(one.begin, queue.stream()), "marking a time");
        all.push_back(one);
    };
    bool const graphs = std::exchange(ctx.uses_graphs, false);
    f();
    ctx.wait();
    queue.watch = mark;
    f();
    mark("the end", 0, 0);
    queue.watch = nullptr;
    ctx.wait();
    ctx.uses_graphs = graphs;

    struct kind {
        double ms = 0;
        int times = 0;
    };
    std::map<std::tuple<std::string, index_t, std::uint64_t>, kind> kinds;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
        float ms = 0;
        calm::detail::check_cuda(cudaEventElapsedTime(&ms, all[i].begin, all[i + 1].begin), "reading a time");
        auto& one = kinds[{all[i].name, all[i].size, all[i].more}];
        one.ms += static_cast<double>(ms);
        ++one.times;
    }
    for (auto const& one : all) (void)cudaEventDestroy(one.begin);
    std::vector<std::pair<kind, std::tuple<std::string, index_t, std::uint64_t>>> sorted;
    for (auto const& [what, one] : kinds) sorted.emplace_back(one, what);
    std::ranges::sort(sorted, [](auto const& a, auto const& b) { return a.first.ms > b.first.ms; });
    for (auto const& [one, what] : sorted)
        print_record("profile", work + ": " + std::get<0>(what),
                     {{"ms", one.ms},
                      {"times", static_cast<double>(one.times)},
                      {"size", static_cast<double>(std::get<1>(what))},
                      {"k", static_cast<double>(std::get<2>(what))}});
}
#else
template <class F> void print_profile(device_context&, std::string const&, F const&) {}
#endif

}  // namespace bench
