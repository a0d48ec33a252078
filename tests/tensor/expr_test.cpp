#include "calm/tensor/expr/expr.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using complex = std::complex<double>;

// Random numbers in an operation's domain.
struct domain {
    double spread = 1.5;
    double centre = 0;
    bool positive = false;
    double at(std::uint64_t seed, index_t i) const {
        double const x = centre + spread * drawn(seed, i);
        return positive ? 0.1 + std::abs(x) : x;
    }
};

// y = make(x): values against `exact`, gradients (overwritten and accumulated) against the complex step.
template <class On, class Make, class Exact>
void check_unary(char const* name, Make const& make, Exact const& exact, domain const d = {}) {
    using T = typename On::scalar;
    typename On::context const ctx(1, 2);
    for (index_t const n : sizes) {
        typename On::vector x{extents<dyn>(n)}, y{extents<dyn>(n)}, dy{extents<dyn>(n)}, dx{extents<dyn>(n)},
            more{extents<dyn>(n)};
        tensor<complex, extents<dyn>> cx{extents<dyn>(n)}, cy{extents<dyn>(n)};
        for (index_t i = 0; i < n; ++i) {
            x[i] = static_cast<T>(d.at(1, i));
            dy[i] = static_cast<T>(drawn(2, i));
            dx[i] = T{99};
            more[i] = T{2};
            cx[i] = complex(static_cast<double>(x[i]), 1e-100);
        }
        evaluate(ctx, y, make(x));
        differentiate(ctx, make(wrt(x, dx)), dy);
        differentiate(ctx, make(accumulate(x, more)), dy);
        cy = make(cx);
        double const bound = rounding<T>;
        index_t wrong = 0;
        for (index_t i = 0; i < n; ++i) {
            double const slope = cy[i].imag() / 1e-100 * static_cast<double>(dy[i]);
            bool const good = near(static_cast<double>(y[i]), exact(static_cast<double>(x[i])), bound) &&
                              near(static_cast<double>(dx[i]), slope, bound) &&
                              near(static_cast<double>(more[i]), 2 + slope, bound);
            if (!good && wrong++ == 0)
                BOOST_TEST(false, name << "(" << x[i] << ") = " << y[i] << ", expected "
                                       << exact(static_cast<double>(x[i])) << "; slope " << dx[i] << ", expected "
                                       << slope);
        }
        BOOST_TEST(wrong == 0, name << " with " << n << " elements");
    }
}

template <class On, class Make, class Exact>
void check_binary(char const* name, Make const& make, Exact const& exact, domain const d = {}) {
    using T = typename On::scalar;
    typename On::context const ctx(1, 2);
    for (index_t const n : sizes) {
        typename On::vector a{extents<dyn>(n)}, b{extents<dyn>(n)}, y{extents<dyn>(n)}, dy{extents<dyn>(n)},
            da{extents<dyn>(n)}, db{extents<dyn>(n)};
        for (index_t i = 0; i < n; ++i) {
            a[i] = static_cast<T>(d.at(1, i));
            b[i] = static_cast<T>(d.at(2, i));
            dy[i] = static_cast<T>(drawn(3, i));
            da[i] = T{99};
            db[i] = T{3};
        }
        evaluate(ctx, y, make(a, b));
        differentiate(ctx, make(wrt(a, da), accumulate(b, db)), dy);
        tensor<complex, extents<2>> ca, cb, cy;  // a step in a, a step in b
        index_t wrong = 0;
        for (index_t i = 0; i < n; ++i) {
            auto const va = static_cast<double>(a[i]);
            auto const vb = static_cast<double>(b[i]);
            ca[0] = {va, 1e-100}, ca[1] = va, cb[0] = vb, cb[1] = {vb, 1e-100};
            cy = make(ca, cb);
            auto const g = static_cast<double>(dy[i]) / 1e-100;
            if (!near(static_cast<double>(y[i]), exact(va, vb), rounding<T>) ||
                !near(static_cast<double>(da[i]), g * cy[0].imag(), rounding<T>) ||
                !near(static_cast<double>(db[i]), 3 + g * cy[1].imag(), rounding<T>))
                ++wrong;
        }
        BOOST_TEST(wrong == 0, name << " with " << n << " elements: " << wrong << " are wrong");
    }
}

// Keeps the value category: sub-expressions are temporaries, tensors are named.
template <class A> A&& pass(std::remove_reference_t<A>& a) {
    return static_cast<A&&>(a);
}

// value and derivatives of a user-defined operation: a b^2
struct first_times_square {
    template <class V> static V value(V a, V b) { return a * b * b; }
    template <class V> static V back_a(V dy, V, V b, V) { return dy * b * b; }
    template <class V> static V back_b(V dy, V a, V b, V) { return dy * (a * b + a * b); }
};

// memory with overlapping parts
template <class On> struct overlapping {
    typename On::vector memory{extents<dyn>(12)};
    auto part(index_t first) { return rows(memory.view(), first, 8); }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(unary_operations, on, test_devices) {
    domain const positive{.positive = true};
    check_unary<on>(
        "-", [](auto&& a) { return -(pass<decltype(a)>(a)); }, [](double a) { return -a; });
    check_unary<on>(
        "exp", [](auto&& a) { return exp(pass<decltype(a)>(a)); }, [](double a) { return std::exp(a); });
    check_unary<on>(
        "log", [](auto&& a) { return log(pass<decltype(a)>(a)); }, [](double a) { return std::log(a); }, positive);
    check_unary<on>(
        "sqrt", [](auto&& a) { return sqrt(pass<decltype(a)>(a)); }, [](double a) { return std::sqrt(a); }, positive);
    check_unary<on>(
        "square", [](auto&& a) { return square(pass<decltype(a)>(a)); }, [](double a) { return a * a; });
    check_unary<on>(
        "sigmoid", [](auto&& a) { return sigmoid(pass<decltype(a)>(a)); },
        [](double a) { return 1 / (1 + std::exp(-a)); });
    check_unary<on>(
        "tanh", [](auto&& a) { return tanh(pass<decltype(a)>(a)); }, [](double a) { return std::tanh(a); });
    check_unary<on>(
        "silu", [](auto&& a) { return silu(pass<decltype(a)>(a)); }, [](double a) { return a / (1 + std::exp(-a)); });
    // all negative, and far from zero
    check_unary<on>(
        "silu, negative", [](auto&& a) { return silu(pass<decltype(a)>(a)); },
        [](double a) { return a / (1 + std::exp(-a)); }, {.spread = 0.5, .centre = -8});
    check_unary<on>(
        "tanh, large", [](auto&& a) { return tanh(pass<decltype(a)>(a)); }, [](double a) { return std::tanh(a); },
        {.spread = 30});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(binary_operations, on, test_devices) {
    check_binary<on>(
        "+", [](auto&& a, auto&& b) { return pass<decltype(a)>(a) + pass<decltype(b)>(b); }, std::plus<>());
    check_binary<on>(
        "-", [](auto&& a, auto&& b) { return pass<decltype(a)>(a) - pass<decltype(b)>(b); }, std::minus<>());
    check_binary<on>(
        "*", [](auto&& a, auto&& b) { return pass<decltype(a)>(a) * pass<decltype(b)>(b); }, std::multiplies<>());
    check_binary<on>("/", [](auto&& a, auto&& b) { return pass<decltype(a)>(a) / pass<decltype(b)>(b); },
                     std::divides<>(), {.positive = true});
    check_binary<on>(
        "maximum", [](auto&& a, auto&& b) { return maximum(pass<decltype(a)>(a), pass<decltype(b)>(b)); },
        [](double a, double b) { return std::max(a, b); });
    check_binary<on>(
        "a b^2",
        [](auto&& a, auto&& b) { return apply<first_times_square>(pass<decltype(a)>(a), pass<decltype(b)>(b)); },
        [](double a, double b) { return a * b * b; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(one_loop_of_many_operations, on, test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 2);
    extents<dyn, 7> const shape(5);
    typename on::template tensor<extents<dyn, 7>> a{shape}, b{shape}, y{shape}, da{shape};
    draw(a, 1);
    draw(b, 2);
    y = 2 * silu(a) * b - 1 / (3.0 + square(b)) + maximum(a, 0);  // scalars on either side
    for (index_t i = 0; i < a.size(); ++i) {
        double const u = static_cast<double>(a[i]);
        double const v = static_cast<double>(b[i]);
        double const want = 2 * u / (1 + std::exp(-u)) * v - 1 / (3 + v * v) + std::max(u, 0.0);
        BOOST_TEST(near(static_cast<double>(y[i]), want, rounding<T>));
    }
    // An operand that occurs twice gets the sum of both gradients: the second accumulates.
    typename on::template tensor<extents<dyn, 7>> ones{shape};
    ones = a * 0 + 1;
    differentiate(ctx, wrt(a, da) * square(accumulate(a, da)), ones);
    for (index_t i = 0; i < a.size(); ++i)
        BOOST_TEST(
            near(static_cast<double>(da[i]), 3 * static_cast<double>(a[i]) * static_cast<double>(a[i]), rounding<T>));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums, on, test_devices) {
    using T = typename on::scalar;
    for (index_t const n : sizes) {
        typename on::vector x{extents<dyn>(n)}, dx{extents<dyn>(n)};
        draw(x, 1);
        double want = 0;
        for (T const v : x) want += static_cast<double>(v) * static_cast<double>(v);
        typename on::context ctx(1, 1);
        auto const total = sum(ctx, square(x));
        BOOST_TEST(near(total, want, 1e-6));
        for (int threads : {2, 3}) {
            typename on::context more(1, threads);
            BOOST_TEST(sum(more, square(x)) == total);
        }
        BOOST_TEST(ctx.workspace.used() == 0U);
        differentiate_sum(ctx, square(wrt(x, dx)), 0.25);
        bool good = true;
        for (index_t i = 0; i < n; ++i)
            good = good && near(static_cast<double>(dx[i]), 0.5 * static_cast<double>(x[i]), rounding<T>);
        BOOST_TEST(good);
        std::fill(x.begin(), x.end(), T{3});
        BOOST_TEST(near(sum(ctx, x), 3.0 * static_cast<double>(n), rounding<T>));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_same_memory_index_by_index_is_legal, on, test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 2);
    constexpr index_t n = 33;
    typename on::vector x{extents<dyn>(n)}, y{extents<dyn>(n)}, dy{extents<dyn>(n)};
    draw(x, 1);
    draw(y, 2);
    draw(dy, 3);
    auto const x0 = copied(x);
    auto const y0 = copied(y);
    auto const dy0 = copied(dy);
    auto const at = [](std::vector<T> const& v, index_t i) { return v[static_cast<std::size_t>(i)]; };
    x = x + y;
    for (index_t i = 0; i < n; ++i) BOOST_TEST(x[i] == at(x0, i) + at(y0, i));
    draw(x, 1);
    differentiate(ctx, wrt(x, x) * wrt(y, dy), dy);  // gradients overwrite an operand and the cotangent
    for (index_t i = 0; i < n; ++i) {
        BOOST_TEST(x[i] == at(dy0, i) * at(y0, i));
        BOOST_TEST(dy[i] == at(dy0, i) * at(x0, i));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(any_other_overlap_is_refused, on, test_devices) {
    typename on::context const ctx(1, 2);
    overlapping<on> o;
    draw(o.memory, 1);
    auto const before = copied(o.memory);
    typename on::vector other{extents<dyn>(8)}, more{extents<dyn>(8)};
    auto const low = o.part(0);
    auto const high = o.part(1);
    auto const refused =
        says(errc::usage, "overlaps an operand at another index", "write into another tensor and copy");
    BOOST_CHECK_EXCEPTION(evaluate(ctx, low, high + other), error, refused);
    BOOST_CHECK_EXCEPTION(evaluate(ctx, high, exp(other * (other - low))), error, refused);
    auto const gradient = says(errc::usage, "calm::differentiate", "a gradient overlaps");
    BOOST_CHECK_EXCEPTION(differentiate(ctx, square(wrt(low, high)), other), error, gradient);  // its own operand
    BOOST_CHECK_EXCEPTION(differentiate(ctx, wrt(other, low) * high, more), error, gradient);   // another operand
    BOOST_CHECK_EXCEPTION(differentiate(ctx, square(wrt(other, low)), high), error, gradient);  // the cotangent
    BOOST_CHECK_EXCEPTION(differentiate(ctx, wrt(other, low) * wrt(more, high), other), error,
                          gradient);  // another gradient
    BOOST_CHECK_EXCEPTION(differentiate_sum(ctx, wrt(other, low) * high, 1), error, gradient);
    auto const twice = says(errc::usage, "two gradients go to the same tensor", "use accumulate");
    BOOST_CHECK_EXCEPTION(differentiate(ctx, wrt(other, low) * wrt(more, low), other), error, twice);
    BOOST_CHECK_EXCEPTION(differentiate(ctx, accumulate(other, low) * wrt(more, low), other), error, twice);
    BOOST_CHECK((copied(o.memory) == before));                                    // an error changes nothing
    evaluate(ctx, rows(o.memory.view(), 0, 6), rows(o.memory.view(), 6, 6) + 1);  // adjacent, not overlapping
    BOOST_TEST(o.memory[0] == before[6] + 1);
}

BOOST_AUTO_TEST_CASE(merging_keeps_every_static_size) {
    using detail::shapes_together;
    using m = shapes_together<extents<dyn, 4, 5>, extents<3, dyn, 5>>;
    static_assert(m::possible && std::is_same_v<m::type, extents<3, 4, 5>>);
    static_assert(!shapes_together<extents<3>, extents<4>>::possible);
    static_assert(std::is_same_v<shapes_together<extents<5>, extents<dyn, dyn>>::type, extents<dyn, 5>>);
    static_assert(std::is_same_v<shapes_together<extents<3, 1>, extents<dyn, dyn>>::type, extents<3, dyn>>);
    static_assert(!shapes_together<extents<4, 1>, extents<3, 7>>::possible);
    static_assert(!shapes_together<extents<4>, extents<4, 1>>::possible);
    BOOST_TEST(m::possible);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_that_differ_are_refused_with_both, on, test_devices) {
    typename on::context const ctx(1, 2);
    using matrix = typename on::template tensor<extents<dyn, dyn>>;
    matrix a{extents<dyn, dyn>(2, 3)}, b{extents<dyn, dyn>(3, 2)}, c{extents<dyn, dyn>(2, 3)};
    typename on::template tensor<extents<2, 3>> fixed;
    auto const both = says(errc::usage, "must have the same shape", "(2, 3)", "(3, 2)");
    BOOST_CHECK_EXCEPTION(c = a + b, error, both);
    BOOST_CHECK_EXCEPTION(c = fixed * b, error, both);
    BOOST_CHECK_EXCEPTION(b = exp(a), error, both);
    BOOST_CHECK_EXCEPTION(evaluate(ctx, b, maximum(a, c)), error, both);
    BOOST_CHECK_EXCEPTION(differentiate(ctx, square(wrt(a, b)), c), error, both);
    BOOST_CHECK_EXCEPTION(differentiate(ctx, square(wrt(a, c)), b), error, both);
    c = fixed + a;  // static and dynamic sizes that agree
}

BOOST_AUTO_TEST_CASE_TEMPLATE(huge_numbers_and_nan, on, test_devices) {
    using T = typename on::scalar;
    typename on::context const ctx(1, 1);
    constexpr T huge = std::numeric_limits<T>::max() / 4;
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    constexpr index_t n = 21;  // a packet and single elements
    typename on::vector x{extents<dyn>(n)}, y{extents<dyn>(n)}, dx{extents<dyn>(n)}, ones{extents<dyn>(n)};
    auto const all = [&](auto want) {
        for (T const v : y)
            if (!(std::isnan(want) ? std::isnan(v) : v == want)) return false;
        return true;
    };
    ones = ones + 1;
    x = x + static_cast<double>(huge);
    BOOST_TEST((y = tanh(x), all(T{1})));
    BOOST_TEST((y = tanh(-x), all(T{-1})));
    BOOST_TEST((y = sigmoid(x), all(T{1})));
    BOOST_TEST((y = sigmoid(-x), all(T{0})));
    BOOST_TEST((y = silu(x), all(huge)));
    BOOST_TEST((y = exp(-x), all(T{0})));
    BOOST_TEST((y = exp(x), all(std::numeric_limits<T>::infinity())));
    differentiate(ctx, silu(wrt(x, dx)), ones);
    BOOST_TEST((y = dx + 0, all(T{1})));
    x = -x;
    differentiate(ctx, silu(wrt(x, dx)), ones);
    BOOST_TEST((y = dx + 0, all(T{0})));
    x = x * 0 + static_cast<double>(nan);
    BOOST_TEST((y = exp(x), all(nan)));
    BOOST_TEST((y = log(x), all(nan)));
    BOOST_TEST((y = sqrt(x), all(nan)));
    BOOST_TEST((y = tanh(x), all(nan)));
    BOOST_TEST((y = silu(x) * 0, all(nan)));
    BOOST_TEST((y = sigmoid(x), all(nan)));
    BOOST_TEST((y = maximum(x, ones), all(nan)));
    BOOST_TEST((y = maximum(ones, x), all(nan)));
}

BOOST_AUTO_TEST_CASE(complex_numbers_go_through_the_same_templates) {
    tensor<complex, extents<3>> x, y;
    draw(x, 1);
    for (auto& v : x) v += complex(0, 0.25);
    y = exp(x) / (1 + square(x)) - silu(x);
    for (index_t i = 0; i < 3; ++i) {
        complex const v = x[i];
        BOOST_TEST(std::norm(y[i] - (std::exp(v) / (1.0 + v * v) - v / (1.0 + std::exp(-v)))) < 1e-28);
    }
    context<> ctx(1, 1);
    BOOST_TEST(std::norm(sum(ctx, 2 * x) - 2.0 * (x[0] + x[1] + x[2])) < 1e-28);
}

BOOST_AUTO_TEST_CASE(the_threads_change_no_bit) {
    constexpr index_t n = 70001;
    tensor<float, extents<dyn>> x{extents<dyn>(n)}, dy{extents<dyn>(n)};
    draw(x, 1);
    draw(dy, 2);
    std::vector<std::vector<float>> all;
    for (int threads : {1, 2, 3}) {
        context<> const ctx(1, threads);
        tensor<float, extents<dyn>> y{extents<dyn>(n)}, dx{extents<dyn>(n)};
        evaluate(ctx, y, silu(x) * tanh(x));
        differentiate(ctx, silu(wrt(x, dx)) * tanh(accumulate(x, dx)), dy);
        all.push_back(copied(y));
        all.push_back(copied(dx));
    }
    BOOST_CHECK((all[0] == all[2] && all[0] == all[4]));
    BOOST_CHECK((all[1] == all[3] && all[1] == all[5]));
}
