// Collective operations of a block's threads: bit-identical on the device and the host.
#include "on_device.hpp"

using namespace calm::test;
using calm::extents;
using calm::index_t;

namespace {

// For x (blocks, N): sums, two of them in sequence, the largest, and what each thread gets from another.
template <int N> struct together {
    static constexpr int threads = N;
    struct shared {};
    float const* x;
    float* sums;       // (blocks, N)
    float* largest;    // (blocks, N)
    float* exchanged;  // (blocks, N)
    int mask;
    template <class Block> CALM_HD void operator()(Block& b, shared&, index_t block) const {
        typename Block::template per_thread<float> own;
        typename Block::template per_thread<double> square;
        b.phase([&](int t) { own[t] = x[block * N + t]; });
        float const mean = b.sum(own) / N;
        b.phase([&](int t) { square[t] = static_cast<double>((own[t] - mean) * (own[t] - mean)); });
        double const squares = b.sum(square);
        float const most = b.max(own);
        auto const other = b.shuffle_xor(own, mask);
        b.phase([&](int t) {
            sums[block * N + t] = static_cast<float>(squares);
            largest[block * N + t] = most;
            exchanged[block * N + t] = other[t];
        });
    }
};

// y = x through shared memory, in runs of `each` elements per thread.
struct copying {
    static constexpr int threads = 64;
    static constexpr int most = 8;
    struct alignas(16) shared {
        float x[threads * most + 4];
    };
    float const* x;
    float* y;
    int each;
    int apart;  // offset in shared memory
    template <class Block> CALM_HD void operator()(Block& b, shared& s, index_t) const {
        b.phase([&](int t) { b.copy_async(s.x + apart + t * each, x + t * each, each); });
        b.wait_for_copies();
        b.phase([&](int t) {
            for (int i = t; i < threads * each; i += threads) y[i] = s.x[apart + i];
        });
    }
};

template <int N> void collectives() {
    constexpr index_t blocks = 5;
    using shape = extents<blocks, N>;
    auto const x = draws(shape{}.size(), N);
    for (int mask = 0; mask < N && mask < 32; mask += 3)
        compare<calm::blocks>("sum, max, shuffle_xor", 0, [&](auto& ctx) {
            auto const all = ctx.saved.template take<float>(extents<3, blocks, N>());
            float* const to = all.data();
            constexpr index_t n = shape{}.size();
            launch(ctx, blocks, together<N>{given(ctx, x, shape()).data(), to, to + n, to + 2 * n, mask});
            return taken_back(ctx, all);
        });
}

void copies() {
    auto const x = draws(copying::threads * copying::most + 4, 1);
    for (int const each : {1, 2, 3, 4, 8})
        for (int from = 0; from < 4; ++from)
            for (int const apart : {0, 1, 2, from}) {
                compare<calm::blocks>("copy_async", 0, [&](auto& ctx) {
                    auto const v = given(ctx, x, extents<calm::dyn>(static_cast<index_t>(x.size())));
                    auto const y = ctx.saved.template take<float>(extents<calm::dyn>(copying::threads * each));
                    launch(ctx, 1, copying{v.data() + from, y.data(), each, apart});
                    auto const got = taken_back(ctx, y);
                    check(std::equal(got.begin(), got.end(), x.begin() + from), "what was copied is what was there");
                    return got;
                });
            }
}

// Full groups and the tail, at any alignment.
void groups() {
    for (index_t const n : {1, 4, 1023, 1030})
        for (index_t from = 0; from < 4; ++from)
            for (index_t to = 0; to < 4; ++to) {
                auto const x = draws(n + from, 2);
                compare<calm::blocks>("evaluate at any alignment", 2e-6, [&](auto& ctx) {
                    auto const shape = extents<calm::dyn>(n);
                    auto const v = given(ctx, x, extents<calm::dyn>(n + from));
                    auto const all = ctx.saved.template take<float>(extents<calm::dyn>(n + 8));
                    fill(ctx, all, 7.0F);
                    using backend = typename std::remove_const_t<decltype(v)>::backend;
                    evaluate(ctx, calm::vector_view<float, calm::dyn, backend>(all.data() + to, shape),
                             silu(calm::vector_view<float const, calm::dyn, backend>(v.data() + from, shape)) + 1.0);
                    return taken_back(ctx, all);
                });
            }
}

}  // namespace

int main() {
    return on_device([] {
        collectives<4>();
        collectives<32>();
        collectives<64>();
        collectives<256>();
        collectives<1024>();
        copies();
        groups();
    });
}
