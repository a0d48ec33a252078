#include <atomic>
#include <cstdlib>

#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/matmul.hpp"
#include "support/typed.hpp"

// Every allocation of this program is counted; absurdly large ones fail as in a real allocator.
namespace {
std::atomic<long> allocations = 0;
void* counted(std::size_t bytes, std::size_t alignment) {
    ++allocations;
    if (bytes > std::size_t{1} << 40) throw std::bad_alloc();
    void* const p = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}
}  // namespace
void* operator new(std::size_t bytes) {
    return counted(bytes, 16);
}
void* operator new(std::size_t bytes, std::align_val_t a) {
    return counted(bytes, static_cast<std::size_t>(a));
}
void* operator new(std::size_t bytes, std::align_val_t a, std::nothrow_t const&) noexcept {
    try {
        return operator new(bytes, a);
    } catch (std::bad_alloc const&) {
        return nullptr;
    }
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}

using namespace calm;
using namespace calm::test;

namespace {
template <class F> long allocations_of(F const& f) {
    long const before = allocations;
    f();
    return allocations - before;
}
}  // namespace

BOOST_AUTO_TEST_CASE(allocations_are_aligned_and_disjoint) {
    arena<> a("values");
    auto const x = a.take<float>(extents<dyn>(3));
    auto const y = a.take<double>(extents<2, dyn>(5));
    auto const z = a.take<float>(extents<dyn>(0));
    for (void const* const p : {static_cast<void const*>(x.data()), static_cast<void const*>(y.data())})
        BOOST_TEST(reinterpret_cast<std::uintptr_t>(p) % 64 == 0U);
    BOOST_TEST(reinterpret_cast<char*>(y.data()) - reinterpret_cast<char*>(x.data()) == 64);
    BOOST_TEST(z.size() == 0);
    BOOST_TEST(a.used() == 64U + 128U);
    BOOST_TEST(a.peak() == a.used());
    BOOST_TEST(a.name() == "values");
}

BOOST_AUTO_TEST_CASE(rewinding_frees_later_allocations) {
    arena<> a("workspace");
    auto const x = a.take<float>(extents<dyn>(16));
    auto const mark = a.here();
    auto const y = a.take<float>(extents<dyn>(16));
    a.rewind(mark);
    BOOST_TEST(a.used() == 64U);
    BOOST_TEST(a.peak() == 128U);
    BOOST_TEST(a.take<float>(extents<dyn>(16)).data() == y.data());
    {
        arena_scope const scope(a);
        (void)a.take<float>(extents<dyn>(1000));
        BOOST_TEST(a.used() == 128U + 4032U);
    }
    BOOST_TEST(a.used() == 128U);
    a.clear();
    BOOST_TEST(a.used() == 0U);
    BOOST_TEST(a.peak() == 128U + 4032U);
    BOOST_TEST(a.take<float>(extents<dyn>(1)).data() == x.data());
}

BOOST_AUTO_TEST_CASE(several_blocks_become_one_and_nothing_is_allocated_any_more) {
    arena<> a("saved activations");
    std::vector<float*> seen;
    seen.reserve(100);
    auto const round = [&] {
        arena_scope const scope(a);
        seen.clear();
        for (index_t i = 0; i < 20; ++i) {
            auto const x = a.take<float>(extents<dyn>(100003 + i));  // 8 MB in total, in blocks of at least 1 MB
            seen.push_back(x.data());
            std::fill(x.begin(), x.end(), 1.0F);
        }
    };
    BOOST_TEST(allocations_of(round) > 1);  // grows, then merges into one block at the end
    std::size_t const peak = a.peak();
    for (int i = 0; i < 3; ++i) BOOST_TEST(allocations_of(round) == 0);
    BOOST_TEST(a.peak() == peak);
    for (std::size_t i = 1; i < seen.size(); ++i) BOOST_TEST(seen[i] - seen[i - 1] < 100003 + 40);  // one block
}

BOOST_AUTO_TEST_CASE(blocks_behind_a_mark_are_used_again) {
    arena<> a("workspace");
    (void)a.take<float>(extents<dyn>(16));
    auto const mark = a.here();
    auto const fill_up = [&] {
        for (int i = 0; i < 8; ++i) (void)a.take<float>(extents<dyn>(200000));
        a.rewind(mark);
    };
    fill_up();
    BOOST_TEST(allocations_of(fill_up) == 0);
}

BOOST_AUTO_TEST_CASE(too_much_memory_is_an_error_with_the_name_of_the_arena) {
    arena<> a("moments");
    BOOST_CHECK_EXCEPTION(a.take<double>(extents<dyn>(index_t{1} << 50)), error,
                          says(errc::memory, "calm::arena 'moments'", "9007199254740992 bytes", "use smaller batches"));
    BOOST_TEST(a.used() == 0U);
    (void)a.take<double>(extents<dyn>(8));  // still usable
    BOOST_TEST(a.used() == 64U);
}

BOOST_AUTO_TEST_CASE(a_shape_that_no_memory_can_hold_is_an_error_and_not_a_small_piece) {
    arena<> a("moments");
    auto const refused = [](std::string const& shape) {
        return says(errc::memory, "calm::arena 'moments'", "found " + shape + " of 8 bytes each",
                    "use smaller batches");
    };
    constexpr index_t many = index_t{1} << 61;  // 2^64 bytes, which wraps to 0
    BOOST_CHECK_EXCEPTION((void)a.take<double>(extents<dyn>(many)), error, refused("(2305843009213693952)"));
    BOOST_CHECK_EXCEPTION((void)a.take<double>(extents<dyn>(many + 1)), error, refused("(2305843009213693953)"));
    BOOST_CHECK_EXCEPTION((void)a.take<double>(extents<dyn>(many - 1)), error, refused("(2305843009213693951)"));
    BOOST_CHECK_EXCEPTION((void)a.take<double>(extents<dyn>(-1)), error, refused("(-1)"));
    constexpr index_t side = index_t{1} << 32;  // the product alone is 2^64
    BOOST_CHECK_EXCEPTION((void)a.take<double>(extents<dyn, dyn>(side, side)), error,
                          refused("(4294967296, 4294967296)"));
    BOOST_TEST((a.take<double>(extents<dyn, dyn>(side, 0)).size()) == 0);
    BOOST_TEST(a.used() == 0U);
    (void)a.take<double>(extents<dyn>(8));  // still usable
    BOOST_TEST(a.used() == 64U);
}

BOOST_AUTO_TEST_CASE(operations_in_a_steady_state_allocate_nothing) {
    context<> ctx(1, 1);
    constexpr index_t n = 48;
    tensor<float, extents<dyn, dyn>> a{extents<dyn, dyn>(n, n)}, b{extents<dyn, dyn>(n, n)}, c{extents<dyn, dyn>(n, n)};
    draw(a, 1);
    draw(b, 2);
    double total = 0;
    auto const step = [&] {
        c = silu(a) * b;
        evaluate(ctx, c, c + b);
        differentiate(ctx, silu(wrt(a, c)) * b, b);
        matmul(ctx, c, a, transposed(b));
        total += sum(ctx, square(c));
    };
    step();
    BOOST_TEST(allocations_of(step) == 0);
}
