#include "calm/train/optimizer.hpp"

#include <cstdlib>
#include <limits>
#include <new>

#include "calm/tensor/ops/fill.hpp"
#include "support/sentences.hpp"
#include "support/stepped.hpp"
#include "support/temporary_folder.hpp"
#include "support/typed.hpp"

using namespace calm;
using calm::test::copied;
using calm::test::opened;
using calm::test::stepped;
using calm::test::test_device;
using calm::test::test_devices;

namespace {

std::size_t allocations = 0;

// A matrix with weight decay, longer than a range and a packet, and two vectors without.
template <class E> struct small_model {
    using T = typename E::scalar;
    using backend = typename E::backend;
    using space_type = space<backend, T>;
    template <class Shape> static auto make(role starts, Shape const& shape = Shape()) {
        return make_param<Shape, space_type>(starts, shape);
    }
    param<extents<dyn, 3>, space_type> matrix = make(role::weight, extents<dyn, 3>(7001));
    param<extents<5>, space_type> bias = make<extents<5>>(role::bias);
    param<extents<dyn>, space_type> empty = make(role::gain, extents<dyn>(0));
    arena<backend> values{"values"};
    arena<backend> gradients{"gradients"};

    small_model() {
        allocate(*this, values, &gradients);
        context<backend> const ctx(5, 1);
        fill_normal(ctx, matrix.value, key{5, stream::initialise, 0}, 0);
        fill_normal(ctx, bias.value, key{6, stream::initialise, 0}, 0);
    }
    template <class Visitor> void visit(Visitor& visitor) {
        visitor("layer.matrix", matrix);
        visitor("layer.bias", bias);
        visitor("layer.empty", empty);
    }
    void draw_gradients(std::uint64_t seed) {
        context<backend> const ctx(seed, 1);
        fill_normal(ctx, matrix.gradient(), key{seed, stream::posterior, 0}, 0);
        fill_normal(ctx, bias.gradient(), key{seed, stream::target, 0}, 0);
        static_cast<void>(empty.gradient());
    }
    void keep_gradients() {  // marks all gradients as received, for a further step
        static_cast<void>(matrix.gradient());
        static_cast<void>(bias.gradient());
        static_cast<void>(empty.gradient());
    }
    // The values of matrix and bias, concatenated.
    [[nodiscard]] std::vector<double> numbers(auto const& of_matrix, auto const& of_bias) const {
        auto const first = copied(of_matrix), second = copied(of_bias);
        std::vector<double> all(first.begin(), first.end());
        all.insert(all.end(), second.begin(), second.end());
        return all;
    }
    [[nodiscard]] std::vector<double> weights() const { return numbers(matrix.value, bias.value); }
    [[nodiscard]] std::vector<double> gradient_numbers() const { return numbers(matrix.grad, bias.grad); }
};

std::string sentence_of(auto&& call) {
    return calm::test::sentence_of<error>(call);
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* const p = std::malloc(bytes)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_match_the_formula, E, test_devices) {
    small_model<E> model;
    adamw optimizer(model, {.weight_decay = 0.1, .clip = 20});
    context<typename E::backend> ctx(1, 2);
    auto p = model.weights();
    auto const matrix = static_cast<std::size_t>(model.matrix.value.size());
    std::vector<double> m(p.size());
    std::vector<double> v(p.size());
    for (int t = 1; t <= 3; ++t) {
        model.draw_gradients(static_cast<std::uint64_t>(t));
        auto const g = model.gradient_numbers();
        double squares = 0;
        for (double const x : g) squares += x * x;
        double const rate = 0.01 * t;
        double const norm = stepped(optimizer, ctx, rate);
        BOOST_TEST(norm == std::sqrt(squares), boost::test_tools::tolerance(1e-12));
        BOOST_TEST(norm > 20);  // so it is clipped
        for (std::size_t i = 0; i < p.size(); ++i) {
            double const x = g[i] * 20 / (norm + 1e-6);
            if (i < matrix) p[i] *= 1 - rate * 0.1;
            m[i] = 0.9 * m[i] + 0.1 * x;
            v[i] = 0.95 * v[i] + 0.05 * x * x;
            p[i] -= rate / (1 - std::pow(0.9, t)) * m[i] / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
        }
    }
    double worst = 0;
    auto const got = model.weights();
    for (std::size_t i = 0; i < p.size(); ++i) worst = std::max(worst, std::abs(got[i] - p[i]));
    BOOST_TEST(worst < (sizeof(typename E::scalar) == 4 ? 2e-6 : 1e-14));
    BOOST_TEST(optimizer.updates() == 3);
}

BOOST_AUTO_TEST_CASE(a_small_norm_is_not_clipped_and_none_is_with_zero) {
    for (double const clip : {1e9, 0.0}) {
        small_model<test_device<cpu, double>> model;
        small_model<test_device<cpu, double>> other;
        adamw a(model, {.clip = clip});
        adamw b(other, {.clip = 1e12});
        context<> ctx(1, 1);
        model.draw_gradients(1);
        other.draw_gradients(1);
        a.step(ctx, 0.1);
        b.step(ctx, 0.1);
        BOOST_TEST(std::equal(model.matrix.value.begin(), model.matrix.value.end(), other.matrix.value.begin()));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_are_zero_after_a_step_and_have_to_come_again, E, test_devices) {
    small_model<E> model;
    adamw optimizer(model);
    context<typename E::backend> ctx(1, 2);
    model.draw_gradients(1);
    optimizer.step(ctx, 1e-3);
    BOOST_TEST(std::ranges::all_of(model.gradient_numbers(), [](auto g) { return g == 0; }));
    static_cast<void>(model.matrix.gradient());
    auto const sentence = sentence_of([&] { optimizer.step(ctx, 1e-3); });
    BOOST_TEST(sentence.find("found none for layer.bias") != std::string::npos, sentence);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_same_bits_whatever_the_threads_and_their_order, E, test_devices) {
    std::vector<typename E::scalar> first;
    double first_norm = 0;
    using enum thread_order;
    for (auto const& [threads, order] : {std::pair(1, ascending), {2, descending}, {3, permuted}, {7, ascending}}) {
        small_model<E> model;
        adamw optimizer(model);
        context<typename E::backend> ctx(1, threads);
        ctx.order = order;
        double norm = 0;
        for (std::uint64_t t = 0; t < 3; ++t) {
            model.draw_gradients(t);
            norm = stepped(optimizer, ctx, 1e-2);
        }
        auto const now = copied(model.matrix.value);
        if (first.empty()) first = now, first_norm = norm;
        BOOST_TEST((now == first));
        BOOST_TEST(norm == first_norm);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(non_finite_gradients_change_no_weight_and_are_named, E, test_devices) {
    using T = typename E::scalar;
    for (T const bad : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()}) {
        small_model<E> model;
        adamw optimizer(model);
        context<typename E::backend> ctx(1, 2);
        ctx.step = 17;
        model.draw_gradients(1);
        auto const before = model.weights();
        opened(model.bias.grad)[4] = bad;
        auto const try_step = [&] {
            model.keep_gradients();
            stepped(optimizer, ctx, 1e-3);
        };
        auto sentence = sentence_of(try_step);
        BOOST_TEST(sentence.find("layer.bias") != std::string::npos, sentence);
        BOOST_TEST(sentence.starts_with("step 17: "), sentence);
        opened(model.matrix.grad)[20999] = bad;
        sentence = sentence_of(try_step);
        BOOST_TEST(sentence.find("layer.matrix") != std::string::npos, sentence);
        model.draw_gradients(1);
        sentence = sentence_of([&] { stepped(optimizer, ctx, 1e-3, static_cast<double>(bad)); });
        BOOST_TEST(sentence.find("expected a finite loss") != std::string::npos, sentence);
        for (double const rate : {0.2 * static_cast<double>(std::numeric_limits<T>::max()),
                                  std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
            model.keep_gradients();
            sentence = sentence_of([&] { stepped(optimizer, ctx, rate); });
            BOOST_TEST(sentence.find("a learning rate that fits the type of the weights") != std::string::npos,
                       sentence);
        }
        BOOST_TEST(optimizer.updates() == 0);
        BOOST_TEST((before == model.weights()));
        model.keep_gradients();
        try {
            stepped(optimizer, ctx, 1e-3, static_cast<double>(bad));
        } catch (error const& e) {
            BOOST_TEST((e.code() == errc::non_finite));
        }
        model.keep_gradients();
        stepped(optimizer, ctx, 1e-3);  // training can continue
        BOOST_TEST(optimizer.updates() == 1);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_optimizer_resumes_from_the_tensors_of_another, E, test_devices) {
    small_model<E> one;
    adamw first(one);
    context<typename E::backend> ctx(1, 2);
    auto const step = [&](auto& model, auto& optimizer, std::uint64_t seed) {
        model.draw_gradients(seed);
        stepped(optimizer, ctx, 1e-2);
    };
    for (std::uint64_t seed = 1; seed < 4; ++seed) step(one, first, seed);

    small_model<E> two;
    copy(ctx, two.matrix.value, one.matrix.value);
    copy(ctx, two.bias.value, one.bias.value);
    adamw second(two);
    auto const from = first.tensors();
    auto const to = second.tensors();
    first.copy_state_to_host(ctx);
    BOOST_REQUIRE(from.size() == 6U);
    BOOST_TEST(from[0].name == "exp_avg.layer.matrix");
    BOOST_TEST(from[3].name == "exp_avg_sq.layer.bias");
    BOOST_TEST(from[0].bytes.size() == 7001 * 3 * sizeof(typename E::scalar));
    for (std::size_t i = 0; i < from.size(); ++i) {
        BOOST_TEST(from[i].element == sizeof(typename E::scalar));
        std::copy(from[i].bytes.begin(), from[i].bytes.end(), to[i].bytes.begin());
    }
    second.resume_after(typename E::context(), first.updates());
    step(one, first, 9);
    step(two, second, 9);
    BOOST_TEST(second.updates() == 4);
    BOOST_TEST((one.weights() == two.weights()));
    BOOST_CHECK_THROW(second.resume_after(typename E::context(), -1), error);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_that_are_discarded_are_zero, E, test_devices) {
    small_model<E> model;
    adamw optimizer(model);
    context<typename E::backend> ctx(1, 2);
    model.draw_gradients(1);
    opened(model.matrix.grad)[5] = std::numeric_limits<typename E::scalar>::quiet_NaN();
    BOOST_CHECK_THROW(stepped(optimizer, ctx, 1e-2), error);
    optimizer.discard();
    BOOST_TEST(std::ranges::all_of(model.gradient_numbers(), [](auto g) { return g == 0; }));
    BOOST_CHECK_THROW(stepped(optimizer, ctx, 1e-2), error);  // no gradients since discard()
    model.draw_gradients(1);
    stepped(optimizer, ctx, 1e-2);
    BOOST_TEST(optimizer.updates() == 1);
}

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
    small_model<test_device<cpu, float>> model;
    adamw optimizer(model);
    context<> ctx(1, 1);
    BOOST_TEST(optimizer.state_arena().name() == "optimizer state");
    BOOST_TEST(optimizer.state_arena().used() >= 2 * (21003 + 5) * sizeof(float));
    model.draw_gradients(1);
    auto const optimizer_state = optimizer.state_arena().used();
    auto const before = allocations;
    optimizer.step(ctx, 1e-3);
    BOOST_TEST(allocations == before);
    BOOST_TEST(optimizer.state_arena().used() == optimizer_state);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_dry_run_changes_nothing, E, test_devices) {
    small_model<E> model;
    adamw optimizer(model);
    context<typename E::backend> ctx(1, 1);
    model.draw_gradients(1);
    auto const weights = model.weights(), gradients = model.gradient_numbers();
    ctx.set_dry_run(true);
    BOOST_TEST(stepped(optimizer, ctx, 1e-3) == 0);
    BOOST_TEST((model.weights() == weights && model.gradient_numbers() == gradients));
    BOOST_TEST(model.matrix.received_gradients == 0);
    BOOST_TEST(optimizer.updates() == 0);
}

BOOST_AUTO_TEST_CASE(a_model_without_memory_and_settings_that_cannot_be_are_refused) {
    small_model<test_device<cpu, float>> model;
    model.bias.grad = {nullptr, {}};
    BOOST_TEST(sentence_of([&] { adamw const o(model); }).find("layer.bias") != std::string::npos);
    small_model<test_device<cpu, float>> whole;
    BOOST_TEST(sentence_of([&] { adamw const o(whole, {.beta1 = 1}); }) ==
               "calm::adamw: expected beta1 in [0, 1), found 1.000000");
    BOOST_TEST(!sentence_of([&] { adamw const o(whole, {.beta2 = -0.1}); }).empty());
    BOOST_TEST(!sentence_of([&] { adamw const o(whole, {.eps = 0}); }).empty());
    BOOST_TEST(!sentence_of([&] { adamw const o(whole, {.weight_decay = -1}); }).empty());
    BOOST_TEST(!sentence_of([&] { adamw const o(whole, {.clip = std::nan("")}); }).empty());
}
