// Work captured as a graph in one micro-batch and replayed in others: the kernels draw the random numbers of the step
// and micro-batch in which they run.
#include "calm/emulated.hpp"

#include <array>

#include "calm/model/calm.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "support/small.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t V = 11, P = 6, K = 2;

struct moment {
    std::uint32_t step;
    index_t micro_batch;
};

// Launches the kernels of work() at several moments and checks the host values found(): they are equal for new launches
// and for replays of a graph captured at the first moment.
template <class Work, class Found> void check_replayed(context<emulated>& ctx, Work const& work, Found const& found) {
    constexpr std::array<moment, 4> moments{{{5, 1}, {6, 0}, {6, 2}, {5, 0}}};
    auto const go_to = [&](moment m) {
        ctx.step = m.step;
        ctx.micro_batch = m.micro_batch;
    };
    std::vector<decltype(found())> want;
    for (auto const m : moments) {
        go_to(m);
        work();
        want.push_back(found());
        BOOST_REQUIRE(std::count(want.begin(), want.end(), want.back()) == 1);
    }
    go_to(moments[0]);
    ctx.sync_step();
    device_graph<emulated> const graph(ctx, work, 0);
    for (std::size_t i = 0; i < moments.size(); ++i) {
        go_to(moments[i]);
        ctx.sync_step();
        graph.launch(ctx);
        BOOST_CHECK_MESSAGE(found() == want[i], "moment " << i);
    }
    captured_graph<emulated> again;
    auto const before = ctx.counts();
    for (std::size_t i = 0; i < moments.size(); ++i) {
        go_to(moments[i]);
        again(ctx, {}, work);
        BOOST_CHECK_MESSAGE(found() == want[i], "moment " << i << " of work that is done again");
    }
    BOOST_TEST((ctx.counts() - before).graphs == std::ssize(moments) - 1);
}

// Returns the gradients of all parameters and zeroes them.
template <class Model> std::vector<float> gradients_of(context<emulated> const& ctx, Model& model) {
    std::vector<float> all, room;
    for (auto const& p : parameters_of(model)) {
        auto const g = to_host(ctx, p.grad, room);
        all.insert(all.end(), g.begin(), g.end());
        fill(ctx, p.grad, 0.0F);
    }
    return all;
}

std::vector<token_id> ids(index_t n) {
    std::vector<token_id> all;
    for (index_t i = 0; i < n; ++i) all.push_back(static_cast<token_id>((5 * i + i / V) % V));
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_noise_of_an_autoencoder_belongs_to_the_running_step) {
    owned_model<autoencoder<small.autoencoder, space<emulated>>> own(V);
    context<emulated> ctx(3, 2);
    auto const tokens = upload(ctx, std::span<token_id const>(ids(32 * K)));
    decltype(own.model.draw(ctx, tokens, 0.3)) noise;
    auto const draw = [&] {
        arena_scope const scope(ctx.saved);
        noise = own.model.draw(ctx, tokens, 0.3, ctx.micro_batch_counter(32));
    };
    auto const drawn = [&] {
        std::vector<float> all, room;
        std::vector<token_id> shown;
        auto const add = [&](auto const& x) { all.insert(all.end(), x.begin(), x.end()); };
        for (token_id const id : to_host(ctx, noise.shown, shown)) all.push_back(static_cast<float>(id));
        add(to_host(ctx, noise.eps, room));
        add(to_host(ctx, noise.scale, room));
        return all;
    };
    check_replayed(ctx, draw, drawn);
}

namespace {
template <auto C> using on_device = calm_model<C, space<emulated>>;
using models =
    boost::mpl::list<on_device<small>, on_device<with_head(small, drafted{.num_mlp_layers = 1, .noise_size = 8})>,
                     on_device<with_head(small, flow{.num_mlp_layers = 1})>,
                     on_device<with_head(small, diffusion{.num_mlp_layers = 1})>,
                     on_device<with_head(small, margin{})>>;
}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(a_calm_draws_as_in_the_step_that_runs, Model, models) {
    owned_model<Model> own(V);
    context<emulated> ctx(3, 2);
    initialise(ctx, own.model);
    initialise(ctx, own.model.ae_model);
    typename Model::objective o;
    o.samples = 3;
    arena_scope const kept(ctx.saved);
    auto const batch = own.model.prepare(ctx, ids(2 * P * K), P);
    auto const backward = [&] {
        arena_scope const saved(ctx.saved);
        arena_scope const workspace(ctx.workspace);
        own.model.loss_and_gradient(ctx, new_total(ctx), batch, o, ctx.micro_batch_counter(2 * (P - 1)));
    };
    check_replayed(ctx, backward, [&] { return gradients_of(ctx, own.model); });
}

// Operations that a GPU refuses during graph capture.
BOOST_AUTO_TEST_CASE(operations_that_no_graph_can_capture_are_refused) {
    context<emulated> ctx(7, 1);
    auto& device = detail::emulated_device::get();
    tensor<float, extents<50>, emulated> there;
    std::vector<float> here(50, 2.0F);
    void* const taken = device.allocate(64);
    auto const refused = [&](char const* what, auto const& work) {
        fill(ctx, there.view(), 1.0F);
        auto const with_a_fill = [&] {
            fill(ctx, there.view(), 3.0F);
            work();
        };
        BOOST_CHECK_EXCEPTION(device_graph<emulated>(ctx, with_a_fill, 0), error,
                              says(errc::device, "during graph capture", what));
        std::vector<float> room;
        BOOST_TEST(to_host(ctx, there.view(), room)[49] == 1.0F, what);  // captured work does not run
    };
    refused("a memory allocation", [&] { static_cast<void>(device.allocate(64)); });
    refused("a memory release", [&] { device.release(taken); });
    refused("a copy to the host", [&] { ctx.download(here.data(), there.data(), 8); });
    refused("a wait by the host", [&] { ctx.wait(); });
    refused("host access to device memory", [&] { device.open(); });
    refused("another graph", [&] {
        static_cast<void>(device_graph<emulated>(
            ctx, [] {}, 0));
    });
}

namespace {
// y = x, with x uploaded from the host each time; `ask` counts the enqueued work.
struct brought_again {
    context<emulated> ctx{7, 1};
    tensor<float, extents<3>, emulated> y;
    captured_graph<emulated> again;

    device_counts ask(std::uint64_t of, std::vector<float> x, auto const& besides) {
        auto const before = ctx.counts();
        again(ctx, {of}, [&] {
            arena_scope const scope(ctx.workspace);
            copy(ctx, y.view(), upload(ctx, std::span<float const>(x)));
            besides();
            std::fill(x.begin(), x.end(), 0.0F);  // copied when it was enqueued
        });
        return ctx.counts() - before;
    }
    device_counts ask(std::uint64_t of, std::vector<float> const& x) {
        return ask(of, x, [] {});
    }
    std::vector<float> found() {
        std::vector<float> room;
        auto const numbers = to_host(ctx, y.view(), room);
        return {numbers.begin(), numbers.end()};
    }
};
}  // namespace

// The host code runs each time, and a replay takes the bytes of its copies. Work with another key is captured
// separately.
BOOST_AUTO_TEST_CASE(repeated_work_is_a_graph_with_current_bytes) {
    brought_again work;
    auto const check = [&](std::uint64_t of, float x, index_t graphs) {
        auto const asked = work.ask(of, {x, 2, 3});
        BOOST_TEST(asked.graphs == graphs);
        BOOST_TEST(asked.uploads == 1 - graphs);
        BOOST_TEST((asked.launches > 0) == (graphs == 0));
        BOOST_CHECK(work.found() == (std::vector<float>{x, 2, 3}));
    };
    check(1, 10, 0);  // memory is allocated
    check(1, 11, 0);
    check(1, 12, 1);
    check(1, 13, 1);
    check(2, 14, 0);
    check(2, 15, 1);
    check(1, 16, 1);  // still cached
    work.ctx.uses_graphs = false;
    check(2, 17, 0);
    work.ctx.uses_graphs = true;
    for (std::uint64_t const of : {3U, 4U, 5U}) check(of, 18, 0);
    check(1, 19, 1);
    check(2, 20, 0);  // evicted as the least recently used
    check(2, 21, 1);
    // Two replays in flight each have their own bytes.
    work.ask(2, {1, 1, 1});
    auto const first = work.y.data();
    tensor<float, extents<3>, emulated> kept;
    copy(work.ctx, kept.view(), work.y.view());
    work.ask(2, {2, 2, 2});
    BOOST_TEST(first == work.y.data());
    std::vector<float> room;
    BOOST_TEST(to_host(work.ctx, kept.view(), room)[0] == 1.0F);
    BOOST_TEST(work.found()[0] == 2.0F);
}

// A mismatch is an error: other kernels, other arguments, more or fewer launches, longer copies.
BOOST_AUTO_TEST_CASE(work_that_differs_from_its_capture_is_refused) {
    brought_again work;
    tensor<float, extents<8>, emulated> more;
    auto const none = [] {};
    auto const fill_some = [&](index_t from) {
        return [&work, &more, from] {
            fill(work.ctx, vector_view<float, dyn, emulated>(more.data() + from, extents<dyn>(4)), 1.0F);
        };
    };
    auto const add_some = [&] { evaluate(work.ctx, more.view(), more.view() + 1.0F); };
    auto const record = [&](auto const& besides) {
        work.ctx.uses_graphs = false;
        work.ask(1, {1, 2, 3});
        work.ctx.uses_graphs = true;
        for (int i = 0; i < 3; ++i) work.ask(1, {1, 2, 3}, besides);
    };
    auto const refused = [&](auto const& recorded, std::vector<float> const& x, auto const& besides, char const* why) {
        record(recorded);
        BOOST_CHECK_EXCEPTION(work.ask(1, x, besides), error, says(errc::device, "graph replay mismatch", why));
        work.ask(1, {4, 5, 6}, besides);  // starts over
        BOOST_CHECK(work.found() == (std::vector<float>{4, 5, 6}));
    };
    refused(fill_some(0), {1, 2, 3}, none, "captured");
    refused(none, {1, 2, 3}, fill_some(0), "but nothing was captured");
    refused(none, {1, 2, 3, 4}, none, "a copy from the host (16)");
    refused(fill_some(0), {1, 2, 3}, add_some, "captured");
#if defined(__GNUC__) && !defined(__clang__)
    refused(fill_some(0), {1, 2, 3}, fill_some(4), "captured");  // another address
#endif
}

// The host's step number is used, whenever it changes.
BOOST_AUTO_TEST_CASE(device_and_host_keys_are_equal) {
    context<emulated> ctx(7, 1);
    context<blocks> host(7, 1);
    tensor<float, extents<50>, emulated> there;
    tensor<float, extents<50>> here;
    std::vector<float> room;
    for (std::uint32_t const step : {0U, 3U, 3U, 0U, 4294967295U}) {
        ctx.step = step;
        auto const uploads = ctx.counts().uploads;
        fill_normal(ctx, there.view(), ctx.random(stream::target));
        fill_uniform(ctx, there.view(), ctx.random(stream::posterior), 5);
        BOOST_TEST(ctx.counts().uploads - uploads <= 1);
        BOOST_TEST(ctx.random(stream::target).by_value().step == step);
        vector_view<float, 50, blocks> const want(here.data(), {});
        fill_uniform(host, want, key{7, stream::posterior, step}, 5);
        BOOST_TEST(to_host(ctx, there.view(), room) == std::span<float const>(here.data(), 50),
                   boost::test_tools::per_element());
    }
}

// The micro-batch number needs no upload, and draws start where they do on the host.
BOOST_AUTO_TEST_CASE(draws_of_a_micro_batch_begin_behind_those_before) {
    context<emulated> ctx(7, 1);
    context<blocks> host(7, 1);
    tensor<float, extents<50>, emulated> there;
    tensor<float, extents<50>> here;
    std::vector<float> room;
    ctx.step = 3;
    ctx.sync_step();
    for (index_t const micro_batch : {0, 1, 1, 7, 0}) {
        ctx.micro_batch = micro_batch;
        auto const before = ctx.counts();
        fill_uniform(ctx, there.view(), ctx.random(stream::posterior), (ctx.micro_batch_counter(30) + 2) * 7 + 5);
        auto const after = ctx.counts();
        BOOST_TEST(after.uploads == before.uploads);
        BOOST_TEST(after.launches - before.launches <= 2);
        vector_view<float, 50, blocks> const want(here.data(), {});
        fill_uniform(host, want, key{7, stream::posterior, 3}, (30 * micro_batch + 2) * 7 + 5);
        BOOST_TEST(to_host(ctx, there.view(), room) == std::span<float const>(here.data(), 50),
                   boost::test_tools::per_element());
    }
}
