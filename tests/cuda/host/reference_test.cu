// Thrust's sorts, scans and reductions as a reference that shares no code with the library: for the kernels on the
// host, and on a GPU if there is one.
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_scan.h>

#include "calm/loss/detail/block/draw_tokens.hpp"
#include "calm/tensor/ops/rows.hpp"
#include "on_device.hpp"

using namespace calm::test;
using calm::dyn;
using calm::extents;
using calm::index_t;
using calm::token_id;

namespace {

constexpr index_t D = 37;
using rows = extents<dyn, D>;

// f(ctx) on every available device must be close to Thrust's result.
template <class F> void compare_with(char const* what, std::vector<float> const& expected, double bound, F const& f) {
    calm::context<calm::blocks> host(1, 1);
    for (auto const order : {calm::thread_order::ascending, calm::thread_order::permuted}) {
        host.order = order;
        check_near(what, f(host), expected, bound);
    }
    if (!calm::no_device_reason().empty()) return;
    calm::context<calm::cuda> device;
    check_near(what, f(device), expected, bound);
}

// Sums of rows with equal ids: sorted by id, then reduced.
void scattered(index_t R, index_t V) {
    thrust::host_vector<token_id> ids(R);
    for (index_t i = 0; i < R; ++i) ids[i] = static_cast<token_id>((i * i + i / 3) % V);
    auto const dy = draws(R * D, 1);
    auto const table = draws(V * D, 2);

    auto sorted = ids;
    thrust::host_vector<index_t> order(R);
    thrust::sequence(order.begin(), order.end());
    thrust::stable_sort_by_key(sorted.begin(), sorted.end(), order.begin());
    std::vector<float> expected = table;
    thrust::host_vector<float> column(R), sums(V);
    thrust::host_vector<token_id> distinct(V);
    for (index_t j = 0; j < D; ++j) {
        thrust::transform(order.begin(), order.end(), column.begin(),
                          [&](index_t r) { return dy[static_cast<std::size_t>(r * D + j)]; });
        auto const end =
            thrust::reduce_by_key(sorted.begin(), sorted.end(), column.begin(), distinct.begin(), sums.begin());
        for (index_t i = 0; i < end.first - distinct.begin(); ++i)
            expected[static_cast<std::size_t>(distinct[i] * D + j)] += sums[i];
    }
    std::vector<float> const numbers(order.begin(), order.end());  // whole numbers below 2^24
    compare_with("rows in the order of their ids", numbers, 0, [&]<class B>(calm::context<B>& ctx) {
        calm::vector_view<token_id const, dyn, B> const at =
            given(ctx, std::vector<token_id>(ids.begin(), ids.end()), extents<dyn>(R));
        if (R == 0) return std::vector<float>();
        auto const* const found = calm::detail::order_of_rows(ctx, at.data(), R, V);
        auto const rows_found = taken_back(ctx, calm::vector_view<token_id const, dyn, B>(found, extents<dyn>(R)));
        return std::vector<float>(rows_found.begin(), rows_found.end());
    });
    compare_with("rows of equal ids added up", expected, 1e-5, [&]<class B>(calm::context<B>& ctx) {
        auto const more = given(ctx, table, rows(V));
        calm::view<float const, rows, B> const x = given(ctx, dy, rows(R));
        calm::vector_view<token_id const, dyn, B> const at =
            given(ctx, std::vector<token_id>(ids.begin(), ids.end()), extents<dyn>(R));
        scatter_add_rows(ctx, more, x, at);
        return taken_back(ctx, more);
    });
}

// For each row of logits: the running sums of exp(logit - highest), the highest with its lowest index, and the sum.
void scanned(index_t R, index_t width) {
    auto logits = draws(R * width, 3);
    for (float& x : logits) x = std::round(x * 8) / 8;  // so that the highest occurs more than once
    std::vector<float> expected;
    std::vector<float> best;
    for (index_t r = 0; r < R; ++r) {
        auto const* const row = logits.data() + r * width;
        auto const* const highest = thrust::max_element(thrust::host, row, row + width);
        thrust::host_vector<double> scanned(width);
        thrust::transform_inclusive_scan(
            thrust::host, row, row + width, scanned.begin(),
            [&](float x) { return std::exp(static_cast<double>(x) - static_cast<double>(*highest)); },
            thrust::plus<double>());
        for (double const x : scanned) expected.push_back(static_cast<float>(x));
        best.push_back(*highest);
        best.push_back(static_cast<float>(highest - row));
    }
    auto const part = [&]<class B>(calm::context<B>& ctx) {
        return calm::detail::vocabulary_part<float>{given(ctx, logits, extents<dyn, dyn>(R, width)).data(), R, width,
                                                    0};
    };
    compare_with("running sums", expected, 1e-5, [&]<class B>(calm::context<B>& ctx) {
        auto const z = part(ctx);
        auto const totals = ctx.saved.template take<calm::detail::chunk_total<float>>(extents<dyn>(R));
        calm::detail::run_running_sums(ctx, totals.data(), 1, z);
        return taken_back(ctx, calm::vector_view<float, dyn, B>(z.logits, extents<dyn>(R * width)));
    });
    compare_with("the highest and its lowest index", best, 0, [&]<class B>(calm::context<B>& ctx) {
        auto const z = part(ctx);
        auto const tokens = ctx.saved.template take<token_id>(extents<dyn>(R));
        auto const values = ctx.saved.template take<float>(extents<dyn>(R));
        calm::detail::run_best_of_chunk(ctx, tokens.data(), values.data(), z);
        std::vector<float> found;
        auto const ids = taken_back(ctx, tokens);
        auto const most = taken_back(ctx, values);
        for (std::size_t r = 0; r < ids.size(); ++r) {
            found.push_back(most[r]);
            found.push_back(static_cast<float>(ids[r]));
        }
        return found;
    });
    std::vector<float> const total{
        static_cast<float>(thrust::reduce(thrust::host, logits.begin(), logits.end(), 0.0, thrust::plus<double>()))};
    compare_with("a sum", total, 1e-5, [&](auto& ctx) {
        return std::vector<float>{static_cast<float>(sum(ctx, given(ctx, logits, extents<dyn>(R * width))))};
    });
}

}  // namespace

int main() {
    for (index_t const R : {0, 1, 64, 1000}) scattered(R, 11);
    scattered(100, 1);
    scattered(5000, 700);
    for (index_t const width : {1, 7, 256, 1000}) scanned(5, width);
    return failures == 0 ? 0 : 1;
}
