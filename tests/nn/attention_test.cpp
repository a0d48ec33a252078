#include "calm/nn/attention.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr double theta = 10000;

// Attention over sequences of P positions, as a layer of rows.
template <index_t D, index_t Heads, index_t KvHeads, index_t P, class T, class Backend = cpu,
          index_t HeadSize = D / Heads>
struct attending {
    using space_type = space<Backend, T>;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    attention<D, Heads, KvHeads, space<Backend, T>, HeadSize> inner;
    using saved_activations = typename decltype(inner)::saved_activations;
    saved_activations forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        return inner.forward(ctx, x, P, theta);
    }
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        inner.backward(ctx, s, dy, dx, theta);
    }
    template <class Visitor> void visit(Visitor& visitor) { inner.visit(visitor); }
};
template <class T> using few = attending<12, 6, 3, 5, T>;   // fewer positions than a tile, grouped heads
template <class T> using many = attending<8, 2, 1, 70, T>;  // more positions than a tile
template <class T> using alone = attending<8, 2, 2, 1, T>;  // one position
template <class T> using wide = attending<32, 4, 2, 130, T>;
template <class T> using other_width = attending<12, 2, 1, 5, T, cpu, 8>;  // heads of 8 elements, not of 12 / 2
template <class T, class Backend> using few_on = attending<12, 6, 3, 5, T, Backend>;
template <class T, class Backend> using many_on = attending<8, 2, 1, 70, T, Backend>;
template <class T, class Backend> using alone_on = attending<8, 2, 2, 1, T, Backend>;
template <class T, class Backend> using wide_on = attending<32, 4, 2, 130, T, Backend>;
template <class T, class Backend> using other_width_on = attending<12, 2, 1, 5, T, Backend, 8>;
template <class T, class Backend> using broad_on = attending<72, 2, 1, 33, T, Backend>;  // heads wider than a slice

// The textbook formula softmax(q k^T / sqrt(d)) v, with rotation by its definition, in double.
std::vector<double> textbook(attention<12, 6, 3, space<cpu, double>> const& layer, std::vector<double> const& x,
                             index_t P) {
    constexpr index_t D = 12, head = 2;
    auto const times = [&](auto const& w, index_t p, index_t j) {
        double total = 0;
        for (index_t i = 0; i < D; ++i) total += w[j * D + i] * x[static_cast<std::size_t>(p * D + i)];
        return total;
    };
    // A head of two numbers rotates by the angle p itself.
    auto const turned = [&](auto const& w, index_t p, index_t h, index_t j) {
        double const u = times(w, p, h * head);
        double const v = times(w, p, h * head + 1);
        auto const c = static_cast<double>(std::cos(static_cast<float>(p)));
        auto const s = static_cast<double>(std::sin(static_cast<float>(p)));
        return j == 0 ? u * c - v * s : v * c + u * s;
    };
    std::vector<double> mixed(static_cast<std::size_t>(P * D)), y(mixed.size());
    for (index_t p = 0; p < P; ++p)
        for (index_t h = 0; h < 6; ++h) {
            std::vector<double> w;
            double total = 0;
            for (index_t k = 0; k <= p; ++k) {
                double score = 0;
                for (index_t j = 0; j < head; ++j)
                    score +=
                        turned(layer.q_proj.weight.value, p, h, j) * turned(layer.k_proj.weight.value, k, h / 2, j);
                w.push_back(std::exp(score / std::sqrt(2.0)));
                total += w.back();
            }
            for (index_t j = 0; j < head; ++j)
                for (index_t k = 0; k <= p; ++k)
                    mixed[static_cast<std::size_t>(p * D + h * head + j)] +=
                        w[static_cast<std::size_t>(k)] / total * times(layer.v_proj.weight.value, k, h / 2 * head + j);
        }
    for (index_t p = 0; p < P; ++p)
        for (index_t j = 0; j < D; ++j)
            for (index_t i = 0; i < D; ++i)
                y[static_cast<std::size_t>(p * D + j)] +=
                    layer.o_proj.weight.value[j * D + i] * mixed[static_cast<std::size_t>(p * D + i)];
    return y;
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_by_the_definition) {
    for (index_t const P : {1, 5, 64, 65, 70}) {
        prepared<attention<12, 6, 3, space<cpu, double>>, double> p;
        auto const x = draws<double>(P * 12, 1);
        auto const y = p.model.forward(p.ctx, matrix_view<double const, 12>(x.data(), extents<dyn, 12>(P)), P, theta).y;
        auto const want = textbook(p.model, x, P);
        double worst = 0;
        for (index_t i = 0; i < y.size(); ++i)
            worst = std::max(worst, std::abs(y[i] - want[static_cast<std::size_t>(i)]));
        BOOST_TEST(worst < 1e-12, P << " positions: " << worst);
    }
}

BOOST_AUTO_TEST_CASE(gradients_by_the_complex_step) {
    check_layer<few>(15);  // three sequences
    check_layer<many>(140, {}, {}, 6);
    check_layer<alone>(2);
    check_layer<other_width>(15);
}

BOOST_AUTO_TEST_CASE(laws) {
    check_layer_laws<wide>(260);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(devices_agree, E, test_devices) {
    check_device<E, few_on>(0);
    check_device<E, few_on>(15);
    check_device<E, many_on>(140);
    check_device<E, alone_on>(3);
    check_device<E, wide_on>(260);
    check_device<E, broad_on>(66);
    check_device<E, other_width_on>(15);
}

// One key takes all the weight.
BOOST_AUTO_TEST_CASE_TEMPLATE(huge_scores_stay_finite, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    constexpr index_t D = 32, P = 130;
    prepared<wide_on<T, backend>, T, backend> p;
    auto const x = draws<T, backend>(P * D, 1, 1e4);
    numbers<T, backend> dx(x.size());
    auto const in = in_rows<backend, D>(x);
    auto const s = p.model.forward(p.ctx, in);
    auto const finite = [](auto const& all) {
        return std::all_of(all.begin(), all.end(), [](T v) { return std::isfinite(v); });
    };
    BOOST_TEST(finite(copied(s.y)));
    p.model.backward(p.ctx, s, in, out_rows<backend, D>(dx));
    BOOST_TEST(finite(dx));
    for (auto const& q : p.params) BOOST_TEST(finite(copied(q.grad, q.size)));
}

BOOST_AUTO_TEST_CASE(sequences_do_not_see_each_other) {
    prepared<few<float>, float> p;
    auto const x = draws<float>(3 * 5 * 12, 1);
    auto const all = copied(p.model.forward(p.ctx, matrix_view<float const, 12>(x.data(), extents<dyn, 12>(15))).y);
    for (index_t b = 0; b < 3; ++b) {
        auto const y = p.model.forward(p.ctx, matrix_view<float const, 12>(x.data() + b * 60, extents<dyn, 12>(5))).y;
        for (index_t i = 0; i < 60; ++i)
            BOOST_TEST(
                near(static_cast<double>(y[i]), static_cast<double>(all[static_cast<std::size_t>(b * 60 + i)]), 1e-5));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_position_sees_a_later_one, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    constexpr index_t D = 32, P = 130;
    prepared<wide_on<T, backend>, T, backend> p;
    auto x = draws<T, backend>(P * D, 1);
    auto const in = in_rows<backend, D>(x);
    auto const before = copied(p.model.forward(p.ctx, in).y);
    for (index_t const changed : {129, 100, 64, 63, 1}) {
        for (index_t i = changed * D; i < (changed + 1) * D; ++i) x[static_cast<std::size_t>(i)] += T(3);
        auto const after = copied(p.model.forward(p.ctx, in).y);
        BOOST_CHECK(std::equal(after.begin(), after.begin() + changed * D, before.begin()));
        BOOST_CHECK(!std::equal(after.begin(), after.end(), before.begin()));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(weights_sum_to_one, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    constexpr index_t D = 32, P = 130;
    prepared<wide_on<T, backend>, T, backend> p;
    auto x = draws<T, backend>(P * D, 1, 3);
    for (index_t r = 0; r < P; ++r) x[static_cast<std::size_t>(r * D)] = 1;  // values read this column alone
    auto const v = opened(p.model.inner.v_proj.weight.value);
    std::fill(v.begin(), v.end(), T(0));
    for (index_t j = 0; j < v.extent(0); ++j) v[j * D] = T(0.75);
    auto const s = p.model.forward(p.ctx, in_rows<backend, D>(x));
    double worst = 0;
    with_numbers(
        [&](auto const& mixed) {
            for (double const m : opened(mixed)) worst = std::max(worst, std::abs(m - 0.75));
        },
        s.mixed);
    BOOST_TEST(worst < 2e-6);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(one_step_at_a_time_through_the_cache, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    constexpr index_t D = 32, P = 130, B = 2;
    prepared<wide_on<T, backend>, T, backend> p;
    auto const x = draws<T, backend>(B * P * D, 1);
    auto const all = copied(p.model.forward(p.ctx, in_rows<backend, D>(x)).y);
    kv_cache<16, space<backend, T>> cache(B, P);
    double worst = 0;
    for (index_t first = 0, step = 1; first < P; first += step, step = std::min(P - first, step * 3)) {
        numbers<T, backend> fresh(static_cast<std::size_t>(B * step * D));
        for (index_t b = 0; b < B; ++b)
            std::copy_n(x.begin() + (b * P + first) * D, step * D, fresh.begin() + b * step * D);
        auto const y = copied(p.model.inner.extend(p.ctx, in_rows<backend, D>(fresh), cache, theta));
        for (index_t b = 0; b < B; ++b)
            for (index_t i = 0; i < step * D; ++i) {
                auto const want = static_cast<double>(all[static_cast<std::size_t>((b * P + first) * D + i)]);
                worst = std::max(worst,
                                 std::abs(static_cast<double>(y[static_cast<std::size_t>(b * step * D + i)]) - want) /
                                     std::max(1.0, std::abs(want)));
            }
    }
    BOOST_TEST(cache.lengths == (std::vector<index_t>{P, P}), boost::test_tools::per_element());
    BOOST_TEST(worst < (sizeof(T) == 8 ? 1e-13 : 3e-5));
    BOOST_CHECK_EXCEPTION(
        p.model.inner.extend(p.ctx, matrix_view<T const, D, backend>(x.data(), extents<dyn, D>(B)), cache, theta),
        error, says(errc::usage, "holds 130 positions, but 131 are needed", "make it larger"));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(turning_back, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 2);
    auto x = draws<T, backend>(6 * 24, 1);
    auto const before = copied(x);
    auto const v = out_rows<backend, 24>(x);
    rotate(ctx, v, 8, 3, 11, theta);
    double change = 0;
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
        change = std::max(change, std::abs(static_cast<double>(x[i] - before[i])));
    rotate(ctx, v, 8, 3, 11, theta, -1);
    for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(x[i] - before[i])));
    BOOST_TEST(change > 0.1);
    BOOST_TEST(worst < 1e-6);                    // the tables are single precision: c^2 + s^2 = 1 to 1e-7
    rotate(ctx, rows(v, 0, 1), 8, 1, 0, theta);  // position 0 does not rotate
    BOOST_TEST(std::abs(static_cast<double>(x[0] - before[0])) < 1e-6);
}

// Each pair rotates by its own angle, also in heads with more pairs than one kernel block handles.
BOOST_AUTO_TEST_CASE_TEMPLATE(every_pair_turns_by_its_angle, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    context<backend> ctx(1, 2);
    for (index_t const head_size : {2, 30, 256, 258, 600}) {
        index_t const R = 5, heads = 2, width = heads * head_size, half = head_size / 2, period = 3, first = 2045;
        auto x = draws<T, backend>(R * width, 1);
        auto const before = copied(x);
        rotate(ctx, matrix_view<T, calm::dyn, backend>(x.data(), extents<dyn, dyn>(R, width)), head_size, period, first,
               theta);
        double worst = 0;
        for (index_t r = 0; r < R; ++r)
            for (index_t head = 0; head < heads; ++head)
                for (index_t i = 0; i < half; ++i) {
                    double const angle =
                        static_cast<double>(first + r % period) *
                        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
                    auto const at = static_cast<std::size_t>(r * width + head * head_size + i);
                    auto const u = static_cast<double>(before[at]);
                    auto const w = static_cast<double>(before[at + static_cast<std::size_t>(half)]);
                    double const c = std::cos(angle), s = std::sin(angle);
                    worst = std::max(worst, std::abs(static_cast<double>(x[at]) - (u * c - w * s)));
                    worst = std::max(
                        worst, std::abs(static_cast<double>(x[at + static_cast<std::size_t>(half)]) - (w * c + u * s)));
                }
        // Frequencies and angles are single precision: half an ulp of each, at position 2047 and |x| < 5.
        BOOST_TEST(worst < 2047 * 0x1p-23 * 10, "head_size " << head_size);
    }
}

// Sequences of different lengths in one step give the same results as alone, in any thread order.
BOOST_AUTO_TEST_CASE_TEMPLATE(sequences_of_any_length_are_extended_together, E, test_devices) {
    using T = typename E::scalar;
    using backend = typename E::backend;
    constexpr index_t D = 32, fresh = 3;
    prepared<wide_on<T, backend>, T, backend> p;
    prepared<wide_on<double, cpu>, double> reference;
    using enum thread_order;
    std::vector<std::vector<T>> results;
    for (auto const order : {ascending, descending, permuted}) {
        p.ctx.order = order;
        kv_cache<16, space<backend, T>> cache(3, 80);
        kv_cache<16, space<cpu, double>> exact(3, 80);
        auto const advance = [&](index_t b, index_t length) {
            auto const x = draws<double>(length * D, 10 + static_cast<std::uint64_t>(b));
            numbers<T, backend> const narrow(x.begin(), x.end());
            index_t const which[] = {b};
            p.model.inner.extend(p.ctx, in_rows<backend, D>(narrow), cache, theta, which);
            reference.model.inner.extend(reference.ctx, in_rows<cpu, D>(x), exact, theta, which);
        };
        advance(0, 70);
        advance(2, 33);
        auto const x = draws<double>(3 * fresh * D, 5);
        numbers<T, backend> const narrow(x.begin(), x.end());
        index_t const all[] = {2, 0, 1};
        auto const y = p.model.inner.extend(p.ctx, in_rows<backend, D>(narrow), cache, theta, all);
        auto const want = reference.model.inner.extend(reference.ctx, in_rows<cpu, D>(x), exact, theta, all);
        BOOST_TEST(close(copied(y), copied(want), kind::output));
        results.push_back(copied(y));
        BOOST_CHECK((results.front() == results.back()));
    }
}

BOOST_AUTO_TEST_CASE(rows_that_are_not_whole_sequences) {
    prepared<few<float>, float> p;
    auto const x = draws<float>(7 * 12, 1);
    BOOST_CHECK_EXCEPTION(p.model.forward(p.ctx, matrix_view<float const, 12>(x.data(), extents<dyn, 12>(7))), error,
                          says(errc::usage, "whole sequences of 5 positions, found 7 rows"));
}
