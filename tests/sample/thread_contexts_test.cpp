#include "calm/sample/detail/thread_contexts.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <stdexcept>

using namespace calm;

BOOST_AUTO_TEST_CASE(parts_are_whole_grains_and_cover_everything_once) {
    for (int const threads : {1, 2, 3}) {
        context<> ctx(5, threads);
        ctx.step = 9;
        thread_contexts<cpu> separate(ctx);
        BOOST_TEST(separate.size() == threads);
        for (index_t const n : {0, 1, 2, 5, 8, 13}) {
            std::array<int, 13> seen{};
            separate.in_parts(ctx, n, 2, [&](context<>& own, index_t begin, index_t end) {
                arena_scope const scope(own.workspace);
                if (begin % 2 != 0 || (end % 2 != 0 && end != n) || own.threads() != 1 || own.seed != 5 ||
                    own.step != 9 || own.workspace.used() != 0)
                    throw std::logic_error("a part that is none");
                own.workspace.take<int>(extents<dyn>(end));
                for (index_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
            });
            for (index_t i = 0; i < 13; ++i) BOOST_TEST(seen[static_cast<std::size_t>(i)] == (i < n ? 1 : 0));
        }
    }
}

BOOST_AUTO_TEST_CASE(exceptions_of_tasks_are_rethrown) {
    context<> ctx(1, 2);
    thread_contexts<cpu> separate(ctx);
    BOOST_CHECK_THROW(separate.in_parts(ctx, 4, 1,
                                        [](context<>&, index_t, index_t end) {
                                            if (end == 4) throw error(errc::memory, "too much");
                                        }),
                      error);
}
