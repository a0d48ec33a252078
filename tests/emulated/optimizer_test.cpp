// The optimizer and training steps on the emulated device: enqueued work, and how the host learns of non-finite values.
#include "calm/emulated.hpp"

#include <array>
#include <limits>

#include "calm/tensor/ops/fill.hpp"
#include "calm/train/detail/training.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// Forty parameters, the first longer than one range.
template <class Backend> struct many {
    using space_type = space<Backend>;
    static constexpr std::size_t count = 40;
    std::array<param<extents<dyn>, space_type>, count> parts;
    arena<Backend> values{"values"};
    arena<Backend> gradients{"gradients"};

    many() {
        for (std::size_t i = 0; i < count; ++i)
            parts[i] = make_param<extents<dyn>, space_type>(role::weight, extents<dyn>(i == 0 ? 40000 : index_t(i)));
        allocate(*this, values, &gradients);
        initialise(context<Backend>(5, 1), *this);
    }
    template <class Visitor> void visit(Visitor& visitor) {
        for (std::size_t i = 0; i < count; ++i) visitor("part" + std::to_string(i), parts[i]);
    }
    // Adds random gradients with seed `number`, and makes those in part `bad` NaN.
    void add_gradients(context<Backend>& ctx, std::uint64_t number, std::size_t bad = count) {
        arena_scope const scope(ctx.workspace);
        std::uint64_t first = 0;
        for (std::size_t i = 0; i < count; ++i) {
            auto const to = parts[i].gradient();
            auto const drawn = ctx.workspace.template take<float>(to.extents());
            fill_normal(ctx, drawn, key{number, stream::evaluation, 0}, first);
            evaluate(ctx, to, to + drawn);
            if (i == bad) evaluate(ctx, to, to * not_a_number);
            first += 40000;
        }
    }
    std::vector<float> weights(context<Backend> const& ctx) {
        std::vector<float> all, room;
        for (auto const& p : parts) {
            auto const here = to_host(ctx, p.value, room);
            all.insert(all.end(), here.begin(), here.end());
        }
        return all;
    }
};

// A loss in the device's memory.
vector_view<double const, 1, emulated> loss_there(context<emulated>& ctx, double loss) {
    return {upload(ctx, std::span(&loss, 1)).data(), extents<1>()};
}

training_recipe steps_of(index_t steps, index_t log_every) {
    training_recipe r;
    r.steps = steps;
    r.warmup = 3;
    r.log_every = log_every;
    r.evaluate_every = r.save_every = 1000;
    return r;
}

struct told_run {
    std::vector<index_t> steps;
    std::vector<double> numbers;  // loss and norm of each
    std::vector<float> weights;
    index_t waits = 0;
    std::string failed;
    errc code{};
};

// Runs steps with loss 100 + number; `bad_step` has a gradient that is not finite, `without_text` has no text.
told_run trained(training_recipe const& r, index_t bad_step = -1, index_t stop_after = 1000,
                 index_t without_text = -1) {
    many<emulated> model;
    context<emulated> ctx(1, 2);
    told_run run;
    training_callbacks callbacks;
    callbacks.step = [&](progress const& now) {
        run.steps.push_back(now.step);
        run.numbers.insert(run.numbers.end(), {now.loss, now.gradient_norm});
        BOOST_TEST(now.tokens == 8 * (now.step + 1));
    };
    callbacks.stop = [&] { return std::ssize(run.steps) >= stop_after; };
    index_t waits_before = 0;
    callbacks.resume = [&](training_state&) { waits_before = ctx.counts().waits; };
    try {
        auto const micro = [&](progress& now, auto const& losses) {
            require(ctx.step != without_text, errc::data, "no more text");
            fill(ctx, detail::loss_alone(losses), 100.0 + ctx.step);
            now.cross_entropy = now.kl = now.posterior_std = progress::none;
            model.add_gradients(ctx, ctx.step, index_t{ctx.step} == bad_step ? 7 : many<emulated>::count);
        };
        detail::train(ctx, parameters_of(model), r, callbacks, {.size = {8, 0}, .micro = micro});
    } catch (error const& e) {
        run.code = e.code();
        run.failed = e.what();
    }
    run.waits = ctx.counts().waits - waits_before;
    run.weights = model.weights(ctx);
    return run;
}

std::vector<index_t> numbers_to(index_t n) {
    std::vector<index_t> all;
    for (index_t i = 0; i < n; ++i) all.push_back(i);
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_is_at_most_four_launches_and_a_small_upload) {
    many<emulated> model;
    context<emulated> ctx(1, 2);
    adamw optimizer(model);
    for (std::uint64_t step = 0; step < 3; ++step) {
        model.add_gradients(ctx, step);
        auto const before = ctx.counts();
        optimizer.step(ctx, 1e-3, 2.0);
        auto const after = ctx.counts();
        BOOST_TEST(after.launches - before.launches <= 4);
        BOOST_TEST(after.uploads - before.uploads == 1);
        BOOST_TEST(after.waits == before.waits);
        BOOST_TEST(after.allocations == before.allocations);
    }
    auto const before = ctx.counts();
    BOOST_TEST(optimizer.outcomes(ctx, 3).size() == 3U);
    BOOST_TEST(ctx.counts().waits - before.waits == 1);
    ctx.wait();
}

BOOST_AUTO_TEST_CASE(steps_match_the_kernels_on_the_host) {
    many<emulated> there;
    many<blocks> here;
    context<emulated> ctx(1, 2);
    ctx.order = thread_order::permuted;
    context<blocks> host(1, 2);
    adamw on_device(there, {.clip = 20});
    adamw on_host(here, {.clip = 20});
    index_t const steps = 2 * on_device.outcomes_kept + 3;
    std::vector<double> norms;
    for (index_t i = 0; i < steps; ++i) {
        there.add_gradients(ctx, static_cast<std::uint64_t>(i));
        here.add_gradients(host, static_cast<std::uint64_t>(i));
        norms.push_back(on_host.step(host, 1e-2, 3));
        arena_scope const scope(ctx.workspace);
        on_device.step(ctx, 1e-2, loss_there(ctx, static_cast<double>(i)));
    }
    BOOST_TEST(there.weights(ctx) == here.weights(host), boost::test_tools::per_element());
    auto const last = on_device.outcomes(ctx, 1000);
    BOOST_TEST(std::ssize(last) == on_device.outcomes_kept);
    for (index_t i = 0; i < std::ssize(last); ++i) {
        index_t const step = steps - std::ssize(last) + i;
        BOOST_TEST(last[static_cast<std::size_t>(i)].loss == static_cast<double>(step));
        BOOST_TEST(last[static_cast<std::size_t>(i)].norm == norms[static_cast<std::size_t>(step)]);
    }
    BOOST_TEST(on_device.last_outcome(ctx).norm == norms.back());
    BOOST_TEST(on_device.updates() == steps);
}

// The device skips a bad step and all steps after it, whatever their gradients. The host learns of it when it reads the
// outcome, and can continue.
BOOST_AUTO_TEST_CASE(non_finite_gradients_change_no_weight_and_are_named_on_request) {
    for (bool const of_the_loss : {false, true}) {
        many<emulated> model, other;
        context<emulated> ctx(1, 2);
        adamw optimizer(model), same(other);
        auto const step = [&](std::uint64_t number) {
            bool const bad = number == 3;
            ctx.step = static_cast<std::uint32_t>(number);
            arena_scope const scope(ctx.workspace);
            model.add_gradients(ctx, number, bad && !of_the_loss ? 7 : many<emulated>::count);
            optimizer.step(ctx, 1e-2, loss_there(ctx, bad && of_the_loss ? not_a_number : 1));
            if (number >= 3 && number < 6) return;
            other.add_gradients(ctx, number);
            same.step(ctx, 1e-2, 1);
        };
        for (std::uint64_t number = 1; number < 6; ++number) step(number);
        BOOST_TEST(model.weights(ctx) == other.weights(ctx), boost::test_tools::per_element());
        BOOST_TEST(optimizer.outcomes(ctx, 5).size() == 2U);
        BOOST_CHECK_EXCEPTION(
            optimizer.last_outcome(ctx), error,
            says(errc::non_finite,
                 "step 3: ", of_the_loss ? "a finite loss" : "found NaN or infinity first in the gradient of part7"));
        BOOST_TEST(optimizer.updates() == 2);
        optimizer.discard();
        step(6);
        BOOST_TEST(optimizer.last_outcome(ctx).norm == same.last_outcome(ctx).norm);
        BOOST_TEST(model.weights(ctx) == other.weights(ctx), boost::test_tools::per_element());
        BOOST_TEST(optimizer.updates() == 3);
    }
}

BOOST_AUTO_TEST_CASE(a_rate_that_cannot_be_is_refused_at_once) {
    many<emulated> model;
    context<emulated> ctx(1, 2);
    adamw optimizer(model);
    model.add_gradients(ctx, 1);
    auto const waits = ctx.counts().waits;
    BOOST_CHECK_EXCEPTION(optimizer.step(ctx, not_a_number), error,
                          says(errc::non_finite, "a learning rate that fits the type of the weights"));
    BOOST_TEST(ctx.counts().waits == waits);
    optimizer.step(ctx, 1e-3);
    BOOST_TEST(optimizer.updates() == 1);
}

BOOST_AUTO_TEST_CASE(reports_do_not_depend_on_when_the_host_reads) {
    auto const each = trained(steps_of(11, 1));
    BOOST_TEST(each.steps == numbers_to(11), boost::test_tools::per_element());
    BOOST_TEST(each.waits >= 11);
    for (std::size_t i = 0; i < 11; ++i) BOOST_TEST(each.numbers[2 * i] == 100 + static_cast<double>(i));
    for (index_t const log_every : {4, 64}) {
        auto const some = trained(steps_of(11, log_every));
        BOOST_TEST(some.steps == each.steps, boost::test_tools::per_element());
        BOOST_TEST(some.numbers == each.numbers, boost::test_tools::per_element());
        BOOST_TEST(some.weights == each.weights, boost::test_tools::per_element());
        // After a fifth of the run, four steps later, and at the end.
        BOOST_TEST(some.waits == (log_every == 4 ? 3 : 2));
    }
    // It stops after a reported step.
    BOOST_TEST(trained(steps_of(11, 4), -1, 6).steps == numbers_to(7), boost::test_tools::per_element());
    BOOST_CHECK_THROW(detail::check(steps_of(11, 0)), error);
    BOOST_CHECK_THROW(detail::check(steps_of(11, 65)), error);
}

BOOST_AUTO_TEST_CASE(steps_before_a_bad_one_are_reported_and_kept) {
    auto const good = trained(steps_of(5, 1));
    for (index_t const log_every : {1, 4, 64}) {
        auto const bad = trained(steps_of(11, log_every), 5);
        BOOST_TEST(bad.steps == numbers_to(5), boost::test_tools::per_element());
        BOOST_TEST(bad.numbers == good.numbers, boost::test_tools::per_element());
        BOOST_TEST(bad.weights == good.weights, boost::test_tools::per_element());
        BOOST_TEST((bad.code == errc::non_finite));
        BOOST_TEST(bad.failed.starts_with("step 5: "), bad.failed);
        BOOST_TEST(bad.failed.find("part7") != std::string::npos, bad.failed);
    }
}

BOOST_AUTO_TEST_CASE(steps_before_a_host_error_are_reported) {
    for (index_t const log_every : {1, 4, 64}) {
        auto const run = trained(steps_of(11, log_every), -1, 1000, 6);
        BOOST_TEST(run.steps == numbers_to(6), boost::test_tools::per_element());
        BOOST_TEST((run.code == errc::data));
    }
    // An earlier bad step is reported first.
    auto const run = trained(steps_of(11, 64), 5, 1000, 6);
    BOOST_TEST(run.steps == numbers_to(5), boost::test_tools::per_element());
    BOOST_TEST(run.failed.starts_with("step 5: "), run.failed);
}

BOOST_AUTO_TEST_CASE(a_step_that_may_be_skipped_is_read_back_at_once) {
    auto r = steps_of(11, 4);
    r.skip_nonfinite = 1;
    auto const run = trained(r, 5);
    BOOST_TEST(run.failed.empty(), run.failed);
    BOOST_TEST(run.steps == numbers_to(11), boost::test_tools::per_element());
    BOOST_TEST(std::isnan(run.numbers[2 * 5]));
    BOOST_TEST(run.numbers[2 * 6] == 106);
    BOOST_TEST(run.waits >= 11);
}
