#include "calm/emulated.hpp"
#include "calm/loss/cross_entropy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "calm/tensor/ops/fill.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t D = 4;

template <class T, class Backend = cpu> struct problem {
    numbers<T, Backend> x, table, loss, dx, dtable;
    numbers<token_id, Backend> targets;
    index_t R, V;
    problem(index_t rows, index_t vocabulary) :
        x(draws<T, Backend>(rows * D, 1)), table(draws<T, Backend>(vocabulary * D, 2)),
        loss(static_cast<std::size_t>(rows)), dx(x.size(), T(99)), dtable(table.size(), T(1)), targets(loss.size()),
        R(rows), V(vocabulary) {
        for (index_t r = 0; r < R; ++r)
            targets[static_cast<std::size_t>(r)] = static_cast<token_id>((r * 7919 + V - 1) % V);
    }
    void run(context<Backend>& ctx, bool gradients, double scale = 1) {
        matrix_view<T, D, Backend> const none(nullptr, extents<dyn, D>(0));
        cross_entropy(ctx, vector_view<T, dyn, Backend>(loss.data(), extents<dyn>(R)),
                      gradients ? out_rows<Backend, D>(dx) : none, gradients ? out_rows<Backend, D>(dtable) : none,
                      in_rows<Backend, D>(x), in_rows<Backend, D>(table), in_vector<Backend>(targets), scale);
    }
    std::vector<token_id> argmax(context<Backend>& ctx) const {
        numbers<token_id, Backend> tokens(static_cast<std::size_t>(R), -1);
        argmax_token(ctx, out_vector<Backend>(tokens), in_rows<Backend, D>(x), in_rows<Backend, D>(table));
        return copied(tokens);
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    for (auto const& [R, V] :
         {std::pair(3, 11), std::pair(3, 4100), std::pair(258, 5)}) {  // one and two chunks, two blocks
        context<> ctx(1, 2);
        problem<double> real(R, V);
        problem<complex> twin(R, V);
        constexpr double scale = 0.3;
        real.run(ctx, true, scale);
        for (auto& g : real.dtable) g -= 1;  // the previous value
        auto const f = [&] {
            twin.run(ctx, false);
            complex total{};
            for (complex const& l : twin.loss) total += scale * l;
            return total;
        };
        check_by_differences(
            "x", real.dx.data(), R * D,
            [&](index_t i) { return complex_slope(twin.x[static_cast<std::size_t>(i)], f); }, 6);
        check_by_differences(
            "table", real.dtable.data(), V * D,
            [&](index_t i) { return complex_slope(twin.table[static_cast<std::size_t>(i)], f); }, 12, 1e-9);
        for (std::size_t r = 0; r < real.loss.size(); ++r) BOOST_TEST(near(real.loss[r], twin.loss[r].real(), 1e-12));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(values_by_the_definition, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    for (auto const& [R, V] :
         {std::pair(0, 3), std::pair(1, 1), std::pair(5, 97), std::pair(300, 40), std::pair(2, 9000)}) {
        context<backend> ctx(1, 2);
        problem<T, backend> p(R, V);
        p.run(ctx, false);
        auto const best = p.argmax(ctx);
        for (index_t r = 0; r < R; ++r) {
            double total = 0;
            std::vector<double> z;
            for (index_t v = 0; v < V; ++v) {
                double logit = 0;
                for (index_t j = 0; j < D; ++j)
                    logit += static_cast<double>(p.x[static_cast<std::size_t>(r * D + j)]) *
                             static_cast<double>(p.table[static_cast<std::size_t>(v * D + j)]);
                z.push_back(logit);
                total += std::exp(logit);
            }
            auto const at = static_cast<std::size_t>(r);
            BOOST_TEST(near(static_cast<double>(p.loss[at]),
                            std::log(total) - z[static_cast<std::size_t>(p.targets[at])], rounding<T>));
            double const most = *std::max_element(z.begin(), z.end());
            BOOST_TEST(near(z[static_cast<std::size_t>(best[at])], most, rounding<T>));
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(huge_logits_stay_finite_and_nan_shows, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 1);
    problem<T, backend> p(3, 4100);
    for (auto& v : p.x) v *= T(1e4);
    p.run(ctx, true);
    for (T const l : p.loss) BOOST_TEST(std::isfinite(l));
    for (T const g : p.dx) BOOST_TEST(std::isfinite(g));
    p.x[D] = std::numeric_limits<T>::quiet_NaN();
    p.run(ctx, false);
    BOOST_TEST(std::isfinite(p.loss[0]));
    BOOST_TEST(std::isnan(p.loss[1]));
    BOOST_TEST(std::isfinite(p.loss[2]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ties_go_to_the_lowest_index, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 2);
    problem<T, backend> p(2, 9000);
    std::fill(p.table.begin(), p.table.end(), T(0));
    p.x = {1, 0, 0, 0, -1, 0, 0, 0};
    for (index_t const v : {70, 71, 4095, 4096, 8999})
        p.table[static_cast<std::size_t>(v * D)] = 2;  // across packets, blocks, chunks
    auto best = p.argmax(ctx);
    BOOST_TEST(best[0] == 70);
    BOOST_TEST(best[1] == 0);  // all others are equal
    p.table[70 * D] = p.table[71 * D] = p.table[4095 * D] = 0;
    BOOST_TEST(p.argmax(ctx)[0] == 4096);
    std::fill(p.table.begin(), p.table.end(), T(-1));  // all negative, all equal
    BOOST_TEST(p.argmax(ctx)[0] == 0);
    p.table[8999 * D] = T(-0.5);
    BOOST_TEST(p.argmax(ctx)[0] == 8999);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_threads_and_their_order_change_no_bit, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    using enum thread_order;
    std::vector<std::vector<T>> all;
    for (auto const& [threads, order] : {std::pair(1, ascending), {2, descending}, {3, permuted}}) {
        context<backend> ctx(1, threads);
        ctx.order = order;
        problem<T, backend> p(300, 5000);
        p.run(ctx, true, 0.5);
        all.insert(all.end(), {copied(p.loss), copied(p.dx), copied(p.dtable)});
        auto const best = p.argmax(ctx);
        all.emplace_back(best.begin(), best.end());
    }
    for (std::size_t i = 4; i < all.size(); ++i) BOOST_CHECK((all[i] == all[i % 4]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(devices_agree, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    for (auto const& [R, V] : {std::pair(1, 1), std::pair(3, 257), std::pair(258, 300), std::pair(2, 8193)}) {
        context<backend> ctx(1, 2);
        context<> reference(1, 2);
        if constexpr (device_memory<backend>)
            ctx.memory = 4 * 200 * static_cast<std::size_t>(V) * sizeof(T);  // 200 rows at once
        problem<T, backend> p(R, V);
        problem<double> q(R, V);
        p.run(ctx, true, 1.0 / R);
        q.run(reference, true, 1.0 / R);
        BOOST_TEST(close(copied(p.loss), q.loss, kind::output));
        BOOST_TEST(close(copied(p.dx), q.dx, kind::gradient));
        BOOST_TEST(close(copied(p.dtable), q.dtable, kind::gradient));
        BOOST_TEST(p.argmax(ctx) == q.argmax(reference), boost::test_tools::per_element());
    }
}

// Several targets per row equal the mean of runs with one target each, for losses and gradients; one chunk and two.
BOOST_AUTO_TEST_CASE_TEMPLATE(several_targets_are_the_mean_of_single_ones, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    constexpr index_t M = 3;
    for (auto const& [R, V] : {std::pair(5, 7), std::pair(2, 4100), std::pair(258, 5)}) {
        context<backend> ctx(1, 2);
        problem<T, backend> all(R, V);
        std::vector<double> loss(all.loss.size()), dx(all.dx.size()), dtable(all.dtable.size());
        all.targets.resize(static_cast<std::size_t>(R * M));
        for (std::size_t m = 0; m < M; ++m) {
            problem<T, backend> one(R, V);
            for (std::size_t r = 0; r < one.targets.size(); ++r) {
                one.targets[r] = static_cast<token_id>((r * 31 + m * (r % 2) * 4097) % static_cast<std::size_t>(V));
                all.targets[r * M + m] = one.targets[r];
            }
            one.run(ctx, true, 0.5);
            auto const add = [](std::vector<double>& sum, auto const& part) {
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(part[i]) / M;
            };
            add(loss, one.loss);
            add(dx, one.dx);
            add(dtable, one.dtable);
        }
        all.run(ctx, true, 0.5);
        BOOST_TEST(close(copied(all.loss), loss, kind::output));
        BOOST_TEST(close(copied(all.dx), dx, kind::gradient));
        BOOST_TEST(close(copied(all.dtable), dtable, kind::gradient));
    }
}

// Forward holds one chunk of logits for one block of rows at a time; backward holds all chunks of the block.
BOOST_AUTO_TEST_CASE_TEMPLATE(memory_is_one_block_by_one_chunk_or_by_all, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 1);
    context<backend> dry(1, 1);
    // A device holds the logits of the whole vocabulary, for as many rows as fit a quarter of its memory: here one.
    if constexpr (device_memory<backend>) ctx.memory = dry.memory = 4 * 9000 * sizeof(T);
    problem<T, backend> p(2, 9000);
    p.run(ctx, false);
    BOOST_TEST(ctx.workspace.peak() < 2 * 4096 * sizeof(T) + 4096);
    p.run(ctx, true);
    BOOST_TEST(ctx.workspace.used() == 0U);
    BOOST_TEST(ctx.workspace.peak() < 2 * (9000 + 4096) * sizeof(T) + 4096);
    dry.set_dry_run(true);
    auto const before = p.dx;
    p.run(dry, true);
    BOOST_TEST(dry.workspace.peak() == ctx.workspace.peak());
    BOOST_CHECK((p.dx == before));
}

// For any number of rows and tokens.
BOOST_AUTO_TEST_CASE(logits_of_a_large_vocabulary_take_64_megabytes) {
    context<> ctx(1, 1);
    ctx.set_dry_run(true);
    problem<float> p(2000, 128257);
    p.run(ctx, true);
    BOOST_TEST(ctx.workspace.peak() > std::size_t{50} << 20);
    BOOST_TEST(ctx.workspace.peak() < std::size_t{67} << 20);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(targets_that_cannot_be, E, devices_and_blocks) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 1);
    for (token_id const bad : {-1, 7}) {
        problem<T, backend> p(2, 7);
        p.targets[1] = bad;
        BOOST_CHECK_EXCEPTION(
            p.run(ctx, true), error,
            says(errc::tokenizer, "target " + std::to_string(bad), "vocabulary of 7", "another tokenizer"));
    }
    problem<T, backend> p(2, 7);
    p.targets.resize(3);
    BOOST_CHECK_EXCEPTION(p.run(ctx, true), error, says(errc::usage, "expected targets of 2 numbers, found 3"));
    problem<T, backend> const empty(2, 1);
    numbers<token_id, backend> tokens(2);
    BOOST_CHECK_EXCEPTION(argmax_token(ctx, out_vector<backend>(tokens), in_rows<backend, D>(empty.x),
                                       matrix_view<T const, D, backend>(nullptr, extents<dyn, D>(0))),
                          error, says(errc::usage, "the vocabulary is empty"));
}

BOOST_AUTO_TEST_CASE(destinations_of_another_size_are_refused_unchanged) {
    context<> ctx(1, 1);
    auto const refused = [&](auto&& change, char const* sentence) {
        for (bool const is_dry_run : {false, true}) {
            problem<float> p(3, 7);
            change(p);
            auto const before = p.dx;
            ctx.set_dry_run(is_dry_run);
            BOOST_CHECK_EXCEPTION(p.run(ctx, true), error, says(errc::usage, "calm::cross_entropy", sentence));
            BOOST_CHECK((p.dx == before));
            BOOST_TEST(ctx.workspace.used() == 0U);
        }
        ctx.set_dry_run(false);
    };
    refused([](auto& p) { p.R = 2; }, "expected loss of 3 numbers, found 2");
    refused([](auto& p) { p.R = 4; }, "expected loss of 3 numbers, found 4");
    refused([](auto& p) { p.dx.resize(2 * D); }, "expected dx of shape (3, 4), found (2, 4)");
    refused([](auto& p) { p.dtable.resize(6 * D); }, "expected dtable of shape (7, 4), found (6, 4)");
    refused([](auto& p) { p.dtable.clear(); }, "expected dtable of shape (7, 4), found (0, 4)");

    problem<float> p(3, 7);
    p.dx.clear();  // without gradients dtable is not checked
    p.dtable.clear();
    BOOST_CHECK_NO_THROW(p.run(ctx, false));
    std::vector<token_id> tokens(4, -1);
    for (index_t const size : {2, 4})
        BOOST_CHECK_EXCEPTION(
            argmax_token(ctx, vector_view<token_id>(tokens.data(), extents<dyn>(size)), in_rows<cpu, D>(p.x),
                         in_rows<cpu, D>(p.table)),
            error,
            says(errc::usage, "calm::argmax_token: expected tokens of 3 numbers, found " + std::to_string(size)));
    BOOST_TEST(tokens == std::vector<token_id>(4, -1), boost::test_tools::per_element());
}

// With bf16 products a device computes logits from rounded factors and rounds both them and their gradients. Covered
// are one and several targets per row, some equal, and a vocabulary that is not a multiple of 16 bytes. Each loss is
// off by at most 2^-7 of the sum of |x e|; gradients are off by the rounding of both factors.
BOOST_AUTO_TEST_CASE(gradients_are_rounded_where_products_are) {
    constexpr index_t width = 8, R = 70, V = 131;
    for (index_t const each : {1, 3}) {
        std::vector<token_id> ids;
        for (index_t i = 0; i < R * each; ++i) ids.push_back(static_cast<token_id>(i % 5 == 0 ? 7 : (i * 31) % V));
        auto const found = [&](bool in_bf16) {
            context<emulated> ctx(1, 2);
            if (in_bf16) multiply_in_bf16(ctx);
            auto const x = ctx.saved.take<float>(extents<dyn, width>(R)),
                       table = ctx.saved.take<float>(extents<dyn, width>(V));
            fill_normal(ctx, x, key{1});
            fill_normal(ctx, table, key{2});
            auto const dx = ctx.saved.take<float>(x.extents()), dtable = ctx.saved.take<float>(table.extents());
            auto const loss = ctx.saved.take<float>(extents<dyn>(R));
            fill(ctx, dtable, 0.0F);
            auto const targets = ids_to_device(ctx, ids, V);
            cross_entropy(ctx, loss, dx, dtable, x, table, targets, 1.0);
            auto const taken = [&](auto const& values) {
                std::vector<float> room;
                auto const here = to_host(ctx, values, room);
                return std::vector<double>(here.begin(), here.end());
            };
            return std::array{taken(loss), taken(dx), taken(dtable)};
        };
        auto const half = found(true), full = found(false);
        for (std::size_t part = 0; part < full.size(); ++part) {
            double most = 0, off = 0;
            for (std::size_t i = 0; i < full[part].size(); ++i) {
                most = std::max(most, std::abs(full[part][i]));
                off = std::max(off, std::abs(half[part][i] - full[part][i]));
            }
            BOOST_TEST(off < 0.01 * most, "part " << part << " of " << each << " targets: " << off / most);
            BOOST_TEST((half[part] != full[part]));
        }
    }
}
