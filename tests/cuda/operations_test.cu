// Element-wise trees, sums, rows and random numbers on the device, compared with the cpu and with plain loops in
// double.
#include "on_device.hpp"
#include "plain.hpp"

using namespace calm::test;
using calm::dyn;
using calm::extents;
using calm::index_t;

namespace {

using shape = extents<dyn>;
using matrix = extents<dyn, 37>;

void elementwise(index_t n) {
    auto const x = draws(n, 1);
    auto const dy = draws(n, 2);
    reals values, slopes, total{0};
    for (std::size_t i = 0; i < x.size(); ++i) {
        double const v = x[i];
        double const s = 1 / (1 + std::exp(-v));
        values.push_back(v * s * std::tanh(v) + 1 / (3 + v * v) - std::fmax(v, 0.5));
        slopes.push_back(double{dy[i]} * s * (1 - s) * std::exp(v) + double{dy[i]} * s * std::exp(v));
        total[0] += v * v;
    }
    auto const evaluated = compare<calm::cpu>("evaluate", 2e-6, [&](auto& ctx) {
        auto const v = given(ctx, x, shape(n));
        auto const y = ctx.saved.template take<float>(shape(n));
        evaluate(ctx, y, silu(v) * tanh(v) + 1 / (3 + square(v)) - maximum(v, 0.5));
        return taken_back(ctx, y);
    });
    check_near("evaluate in double", widened(evaluated), values, 2e-6);
    auto const differentiated = compare<calm::cpu>("differentiate", 2e-6, [&](auto& ctx) {
        auto const v = given(ctx, x, shape(n));
        auto const dv = ctx.saved.template take<float>(shape(n));
        differentiate(ctx, sigmoid(wrt(v, dv)) * exp(accumulate(v, dv)), given(ctx, dy, shape(n)));
        return taken_back(ctx, dv);
    });
    check_near("differentiate in double", widened(differentiated), slopes, 2e-6);
    check_near(
        "sum in double",
        compare<calm::cpu>("sum", 1e-6,
                           [&](auto& ctx) { return std::vector<double>{sum(ctx, square(given(ctx, x, shape(n))))}; }),
        total, 1e-6);
}

void rows(index_t R) {
    constexpr index_t V = 11;
    std::vector<std::int32_t> ids;
    for (index_t i = 0; i < R; ++i) ids.push_back(static_cast<std::int32_t>(i * i % V));
    auto x = draws(R * 37, 1);
    for (float& one : x) one = std::abs(one);  // nothing cancels, so the bound is relative to the sum
    auto const table = draws(V * 37, 2);
    reals sums(37, 2.0);
    for (std::size_t i = 0; i < x.size(); ++i) sums[i % 37] += double{x[i]};
    auto more_rows = widened(table);  // plus each row again per occurrence of its id
    for (auto const id : ids)
        for (std::size_t j = 0; j < 37; ++j)
            more_rows[static_cast<std::size_t>(id) * 37 + j] += double{table[static_cast<std::size_t>(id) * 37 + j]};
    auto const added = compare<calm::cpu>("add_sum_axis0", 1e-5, [&](auto& ctx) {
        auto const total = ctx.saved.template take<float>(extents<37>());
        fill(ctx, total, 2.0F);
        auto const v = given(ctx, x, matrix(R));
        using backend = typename std::remove_const_t<decltype(v)>::backend;
        add_sum_axis0(ctx, total, calm::view<float const, matrix, backend>(v));
        return taken_back(ctx, total);
    });
    check_near("add_sum_axis0 in double", widened(added), sums, 1e-5);
    auto const scattered = compare<calm::cpu>("gather_rows, scatter_add_rows, copy", 1e-5, [&](auto& ctx) {
        auto const v = given(ctx, table, matrix(V));
        using backend = typename std::remove_const_t<decltype(v)>::backend;
        calm::vector_view<std::int32_t const, dyn, backend> const at = given(ctx, ids, shape(R));
        auto const y = ctx.saved.template take<float>(matrix(R));
        gather_rows(ctx, y, calm::view<float const, matrix, backend>(v), at);
        auto const more = ctx.saved.template take<float>(matrix(V));
        copy(ctx, more, v);
        scatter_add_rows(ctx, more, calm::view<float const, matrix, backend>(y), at);
        return taken_back(ctx, more);
    });
    check_near("scatter_add_rows in double", widened(scattered), more_rows, 1e-5);
    // More ids than rows, and fewer: each id is the unique id at its inverse index.
    for (index_t const n : {R, std::min(R, V / 2)})
        compare<calm::cpu>("numbered", 0, [&](auto& ctx) {
            std::vector<std::int32_t> const some(ids.begin(), ids.begin() + n);
            auto const found = unique(ctx, given(ctx, some, shape(n)), V);
            auto const distinct = taken_back(ctx, found.unique.view());
            auto all = taken_back(ctx, found.inverse.view());
            for (auto& one : all) one = distinct[static_cast<std::size_t>(one)];
            check(all == some, "numbered ids are the ids");
            return all;
        });
}

void random_numbers() {
    constexpr index_t n = 10001;
    calm::key const k{5, calm::stream::head_noise, 3};
    for (std::uint64_t const first : {std::uint64_t{0}, (std::uint64_t{1} << 34) - 3}) {
        compare<calm::cpu>("fill_normal", 1e-6, [&](auto& ctx) {
            auto const x = ctx.saved.template take<float>(shape(n));
            fill_normal(ctx, x, k, first);
            return taken_back(ctx, x);
        });
        compare<calm::cpu>("fill_uniform", 0, [&](auto& ctx) {
            auto const x = ctx.saved.template take<float>(shape(n));
            fill_uniform(ctx, x, k, first, -0.5F);
            return taken_back(ctx, x);
        });
        compare<calm::cpu>("fill_bernoulli_keep", 0, [&](auto& ctx) {
            auto const x = ctx.saved.template take<float>(shape(n));
            fill_bernoulli_keep(ctx, x, k, 0.25F, 4 / 3.0F, first);
            return taken_back(ctx, x);
        });
    }
}

void refusals() {
    calm::context<device_backend> ctx;
    std::vector<std::int32_t> const ids{0, 7};
    auto const y = ctx.saved.take<float>(matrix(2));
    check_refused("an id outside the table", calm::errc::tokenizer, [&] {
        gather_rows(ctx, y, calm::view<float const, matrix, device_backend>(y),
                    calm::vector_view<std::int32_t const, dyn, device_backend>(given(ctx, ids, shape(2))));
    });
    check_refused("too much memory", calm::errc::memory,
                  [&] { (void)ctx.saved.take<double>(shape(index_t{1} << 50)); });
    calm::tensor<float, shape, device_backend> zeros{shape(100)};
    check(taken_back(ctx, zeros.view()) == std::vector<float>(100), "a tensor starts with zeros");
    ctx.set_dry_run(true);
    fill(ctx, zeros.view(), 1.0F);
    ctx.set_dry_run(false);
    check(taken_back(ctx, zeros.view()) == std::vector<float>(100), "a dry run computes nothing");
}

}  // namespace

int main() {
    return on_device([] {
        for (index_t const n : {0, 1, 3, 255, 16385}) elementwise(n);
        for (index_t const R : {0, 1, 64, 1000}) rows(R);
        random_numbers();
        refusals();
    });
}
