// Muon: singular values against their closed form, steps against a plain loop in double, memory and errors.
#include "calm/train/detail/muon.hpp"

#include <cmath>
#include <vector>

#include "calm/tensor/ops/fill.hpp"
#include "calm/train/optimizer.hpp"
#include "support/sentences.hpp"
#include "support/stepped.hpp"
#include "support/typed.hpp"

using namespace calm;
using calm::test::copied;
using calm::test::stepped;
using calm::test::test_device;
using calm::test::test_devices;

namespace {

using numbers = std::vector<double>;

double after_all(double s) {
    for (auto const& p : detail::towards_one) s = p.a * s + p.b * s * s * s + p.c * s * s * s * s * s;
    return s;
}

// A rank-one matrix (R, C): a b^T with |a| = |b| = 1.
struct direction {
    numbers a, b;
};
// Pairwise orthogonal directions, from the rows of a discrete cosine transform.
direction direction_of(index_t k, index_t R, index_t C) {
    auto const wave = [&](index_t n) {
        numbers w;
        for (index_t i = 0; i < n; ++i)
            w.push_back(std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
                        std::cos(3.14159265358979323846 * (static_cast<double>(i) + 0.5) * static_cast<double>(k) /
                                 static_cast<double>(n)));
        return w;
    };
    return {wave(R), wave(C)};
}
// The matrix with these singular values on those directions.
numbers matrix_of(numbers const& singular, index_t R, index_t C) {
    numbers x(static_cast<std::size_t>(R * C));
    for (std::size_t k = 0; k < singular.size(); ++k) {
        auto const d = direction_of(static_cast<index_t>(k), R, C);
        for (std::size_t i = 0; i < d.a.size(); ++i)
            for (std::size_t j = 0; j < d.b.size(); ++j) x[i * d.b.size() + j] += singular[k] * d.a[i] * d.b[j];
    }
    return x;
}

// Reference for `orthogonalised` in plain loops.
numbers plainly_orthogonalised(numbers x, index_t R, index_t C) {
    double squares = 0;
    for (double const v : x) squares += v * v;
    for (double& v : x) v /= std::sqrt(squares + 1e-30);
    auto const at = [&](numbers const& m, index_t i, index_t j) { return m[static_cast<std::size_t>(i * C + j)]; };
    for (auto const& p : detail::towards_one) {
        numbers next(x.size());
        numbers gram(static_cast<std::size_t>(R * R));  // x x^T
        for (index_t i = 0; i < R; ++i)
            for (index_t j = 0; j < R; ++j)
                for (index_t k = 0; k < C; ++k) gram[static_cast<std::size_t>(i * R + j)] += at(x, i, k) * at(x, j, k);
        for (index_t i = 0; i < R; ++i)
            for (index_t j = 0; j < R; ++j) {
                double squared = 0;
                for (index_t k = 0; k < R; ++k)
                    squared += gram[static_cast<std::size_t>(i * R + k)] * gram[static_cast<std::size_t>(k * R + j)];
                double const factor = p.b * gram[static_cast<std::size_t>(i * R + j)] + p.c * squared;
                for (index_t k = 0; k < C; ++k) next[static_cast<std::size_t>(i * C + k)] += factor * at(x, j, k);
            }
        for (std::size_t i = 0; i < x.size(); ++i) next[i] += p.a * x[i];
        x = next;
    }
    return x;
}

double furthest(auto const& got, numbers const& expected) {
    double worst = 0;
    BOOST_TEST_REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
    return worst;
}

// A wide, a high and a square hidden matrix, a table, and a vector.
template <class E> struct mixed_model {
    using T = typename E::scalar;
    using backend = typename E::backend;
    using space_type = space<backend, T>;
    param<extents<3, 7>, space_type> wide = make_param<extents<3, 7>, space_type>(role::weight);
    param<extents<9, 4>, space_type> high = make_param<extents<9, 4>, space_type>(role::output);
    param<extents<70, 70>, space_type> square = make_param<extents<70, 70>, space_type>(role::xavier);
    param<extents<dyn, 3>, space_type> table =
        make_param<extents<dyn, 3>, space_type>(role::weight, extents<dyn, 3>(11));
    param<extents<5>, space_type> bias = make_param<extents<5>, space_type>(role::bias);
    arena<backend> values{"values"};
    arena<backend> gradients{"gradients"};

    mixed_model() {
        allocate(*this, values, &gradients);
        context<backend> const ctx(5, 1);
        std::uint64_t seed = 0;
        each([&](auto& p) { fill_normal(ctx, p.value, key{++seed, stream::initialise, 0}, 0); });
    }
    void each(auto&& f) {
        f(wide);
        f(high);
        f(square);
        f(table);
        f(bias);
    }
    template <class Visitor> void visit(Visitor& visitor) {
        visitor("wide", wide);
        visitor("high", high);
        visitor("square", square);
        visitor("table", table);
        visitor("bias", bias);
    }
    void draw_gradients(std::uint64_t seed) {
        context<backend> const ctx(seed, 1);
        each([&](auto& p) { fill_normal(ctx, p.gradient(), key{seed, stream::posterior, 0}, 0); });
    }
};

// Muon on one matrix in plain loops.
struct plain_muon {
    index_t R, C;
    numbers weights;
    numbers mean = numbers(weights.size());

    void step(auto const& gradient, double scale, double rate, double decay, double muon) {
        numbers ahead(weights.size());
        for (std::size_t i = 0; i < weights.size(); ++i) {
            double const g = scale * static_cast<double>(gradient[i]);
            mean[i] = 0.95 * mean[i] + 0.05 * g;
            ahead[i] = 0.05 * g + 0.95 * mean[i];
        }
        auto const x = plainly_orthogonalised(ahead, R, C);
        double const length = rate * muon * 0.2 * std::sqrt(static_cast<double>(std::max(R, C)));
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] * (1 - rate * decay) - length * x[i];
    }
};

numbers doubles(auto const& x) {
    auto const all = copied(x);
    return {all.begin(), all.end()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_polynomials_take_a_hundredth_to_one_near_one) {
    double least = 10, most = 0;
    for (int i = 0; i <= 100000; ++i) {
        double const s = after_all(0.01 + 0.99 * i / 100000);
        least = std::min(least, s);
        most = std::max(most, s);
    }
    // The optimal three polynomials deviate equally above and below 1.
    BOOST_TEST(least == 0.73056, boost::test_tools::tolerance(1e-4));
    BOOST_TEST(most == 2 - least, boost::test_tools::tolerance(1e-4));
    BOOST_TEST(after_all(1e-4) / 1e-4 == 78.33, boost::test_tools::tolerance(1e-3));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(singular_values_become_those_of_the_polynomials, E, test_devices) {
    using T = typename E::scalar;
    context<typename E::backend> ctx(1, 2);
    numbers const singular{3, 1, 0.5, 0.04, 0.001};
    double squares = 0;
    for (double const s : singular) squares += s * s;
    for (auto const& [R, C] : {std::pair<index_t, index_t>{5, 5}, {6, 40}, {70, 5}}) {
        typename E::template tensor<extents<dyn, dyn>> x(extents<dyn, dyn>(R, C));
        auto const given = matrix_of(singular, R, C);
        for (std::size_t i = 0; i < given.size(); ++i) x[static_cast<index_t>(i)] = static_cast<T>(given[i]);
        arena_scope const scope(ctx.workspace);
        numbers wanted;
        for (double const s : singular) wanted.push_back(after_all(s / std::sqrt(squares)));
        auto const got = copied(orthogonalised(ctx, x.view()));
        BOOST_TEST(furthest(got, matrix_of(wanted, R, C)) < (sizeof(T) == 4 ? 2e-5 : 1e-13));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_matrix_of_zeros_stays, E, test_devices) {
    using T = typename E::scalar;
    context<typename E::backend> ctx(1, 1);
    typename E::template tensor<extents<dyn, dyn>> x(extents<dyn, dyn>(3, 5));
    fill(ctx, x.view(), T{});
    arena_scope const scope(ctx.workspace);
    for (auto const v : copied(orthogonalised(ctx, x.view()))) BOOST_TEST(v == T{});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(matrices_between_hidden_states_take_its_steps_and_nothing_else_does, E, test_devices) {
    using T = typename E::scalar;
    mixed_model<E> model, adam;
    adamw optimizer(model, {.weight_decay = 0.1, .clip = 20, .muon = 2});
    adamw other(adam, {.weight_decay = 0.1, .clip = 20});
    context<typename E::backend> ctx(1, 2);
    plain_muon wide{3, 7, doubles(model.wide.value)}, high{9, 4, doubles(model.high.value)},
        square{70, 70, doubles(model.square.value)};
    for (int t = 1; t <= 3; ++t) {
        model.draw_gradients(static_cast<std::uint64_t>(t));
        adam.draw_gradients(static_cast<std::uint64_t>(t));
        double const rate = 0.01 * t;
        auto const of_wide = copied(model.wide.grad), of_high = copied(model.high.grad),
                   of_square = copied(model.square.grad);
        double const norm = stepped(optimizer, ctx, rate);
        BOOST_TEST(norm == stepped(other, ctx, rate));
        BOOST_TEST(norm > 20);  // so it is clipped
        double const scale = 20 / (norm + 1e-6);
        wide.step(of_wide, scale, rate, 0.1, 2);
        high.step(of_high, scale, rate, 0.1, 2);
        square.step(of_square, scale, rate, 0.1, 2);
    }
    double const bound = sizeof(T) == 4 ? 2e-6 : 1e-13;
    BOOST_TEST(furthest(copied(model.wide.value), wide.weights) < bound);
    BOOST_TEST(furthest(copied(model.high.value), high.weights) < bound);
    BOOST_TEST(furthest(copied(model.square.value), square.weights) < 10 * bound);
    BOOST_TEST(copied(model.table.value) == copied(adam.table.value), boost::test_tools::per_element());
    BOOST_TEST(copied(model.bias.value) == copied(adam.bias.value), boost::test_tools::per_element());
    BOOST_TEST(copied(model.square.value) != copied(adam.square.value));
    model.each([](auto const& p) {
        for (auto const v : copied(p.grad)) BOOST_TEST(v == T{});
    });
}

BOOST_AUTO_TEST_CASE(the_bits_do_not_depend_on_threads) {
    std::vector<float> one;
    for (int const threads : {1, 2, 3}) {
        mixed_model<test_device<cpu, float>> model;
        adamw optimizer(model, {.muon = 1});
        context<> ctx(1, threads);
        for (std::uint64_t t = 1; t <= 2; ++t) {
            model.draw_gradients(t);
            optimizer.step(ctx, 0.01);
        }
        auto const weights = copied(model.square.value);
        if (one.empty()) one = weights;
        BOOST_TEST(weights == one, boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(muon_has_one_momentum_and_resumes_with_it) {
    using E = test_device<cpu, float>;
    mixed_model<E> model, again;
    context<> ctx(1, 1);
    adamw optimizer(model, {.muon = 1});
    model.draw_gradients(1);
    optimizer.step(ctx, 0.01);
    auto const all = optimizer.tensors();
    std::vector<std::string> names;
    for (auto const& one : all) names.push_back(one.name);
    std::vector<std::string> const expected{"exp_avg.wide",     "exp_avg.high", "exp_avg.square", "exp_avg.table",
                                            "exp_avg_sq.table", "exp_avg.bias", "exp_avg_sq.bias"};
    BOOST_TEST(names == expected, boost::test_tools::per_element());

    adamw later(again, {.muon = 1});
    auto const copies = later.tensors();
    for (std::size_t i = 0; i < all.size(); ++i)
        std::copy(all[i].bytes.begin(), all[i].bytes.end(), copies[i].bytes.begin());
    again.each([&, i = std::size_t{0}](auto& p) mutable {
        auto const from = parameters_of(model)[i++].value;
        std::copy(from.begin(), from.end(), p.value.begin());
    });
    later.resume_after(ctx, optimizer.updates());
    model.draw_gradients(2);
    again.draw_gradients(2);
    optimizer.step(ctx, 0.01);
    later.step(ctx, 0.01);
    BOOST_TEST(copied(model.square.value) == copied(again.square.value), boost::test_tools::per_element());
    BOOST_TEST(copied(model.table.value) == copied(again.table.value), boost::test_tools::per_element());
}

// For Muon matrices, the first step with new optimizer state equals the first step of a run.
BOOST_AUTO_TEST_CASE_TEMPLATE(new_parameters_have_their_own_bias_correction, E, test_devices) {
    mixed_model<E> late, first;
    context<typename E::backend> ctx(1, 2);
    adamw optimizer(late, {.weight_decay = 0.1}), fresh(first, {.weight_decay = 0.1});
    static_cast<void>(optimizer.tensors());
    optimizer.resume_after(ctx, 100, 100);
    for (std::uint64_t const t : {1U, 2U}) {
        late.draw_gradients(t);
        first.draw_gradients(t);
        stepped(optimizer, ctx, 0.01);
        stepped(fresh, ctx, 0.01);
        BOOST_TEST(copied(late.square.value) == copied(first.square.value), boost::test_tools::per_element());
        BOOST_TEST(copied(late.wide.value) == copied(first.wide.value), boost::test_tools::per_element());
        BOOST_TEST(copied(late.high.value) == copied(first.high.value), boost::test_tools::per_element());
        BOOST_TEST(copied(late.table.value) != copied(first.table.value));
        BOOST_TEST(copied(late.bias.value) != copied(first.bias.value));
    }
    for (index_t const none : {-1, 101})
        BOOST_CHECK_EXCEPTION(optimizer.resume_after(ctx, 100, none), error,
                              [](error const& e) { return e.code() == errc::usage; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_that_is_not_finite_changes_nothing, E, test_devices) {
    mixed_model<E> model;
    adamw optimizer(model, {.muon = 1});
    context<typename E::backend> ctx(1, 1);
    auto const before = copied(model.square.value);
    model.draw_gradients(1);
    BOOST_CHECK_THROW(stepped(optimizer, ctx, 0.01, std::nan("")), error);
    BOOST_TEST(copied(model.square.value) == before, boost::test_tools::per_element());
    BOOST_TEST(optimizer.updates() == 0);
}

BOOST_AUTO_TEST_CASE(invalid_settings_are_refused) {
    mixed_model<test_device<cpu, float>> model;
    auto const refused = [&](double muon) {
        return calm::test::sentence_of<error>([&] { adamw const optimizer(model, {.muon = muon}); });
    };
    BOOST_TEST(refused(-1).find("expected muon of at least 0") != std::string::npos);
    BOOST_TEST(refused(std::nan("")).find("expected muon of at least 0") != std::string::npos);
}
