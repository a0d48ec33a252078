// Products of the emulated device take the copies of matrices, to the bits that they have when they round themselves.
#include "calm/emulated.hpp"
#include "calm/tensor/bf16_copies.hpp"

#include <vector>

#include "calm/tensor/bf16_products.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/matmul.hpp"
#include "calm/tensor/rows.hpp"
#include "support/rows.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <index_t Columns> using rows_of = matrix_view<float, Columns, emulated>;

struct device {
    context<emulated> ctx{1, 2};
    device() { multiply_in_bf16(ctx); }

    // What f multiplies into y, and by how many launches.
    template <class F> std::pair<std::vector<float>, index_t> by(rows_of<40> const& y, F const& f) {
        auto const before = ctx.counts();
        f(y);
        auto const launches = (ctx.counts() - before).launches;
        return {values_of(ctx, y), launches};
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(products_take_copies_of_what_they_read) {
    device on;
    auto const x = activations<float, 48, emulated>(on.ctx.saved.take<bf16>(extents<dyn, 48>(70)));
    copy(on.ctx, x.rounded(), drawn_rows<48>(on.ctx, 70, 1));
    auto const w = drawn_rows<48>(on.ctx, 40, 2);        // (40, 48)
    auto const large = drawn_rows<48>(on.ctx, 1000, 3);  // more than a part, of which rows are read
    auto const wide = drawn_rows<96>(on.ctx, 40, 4);     // columns of it are read
    auto const y = drawn_rows<40>(on.ctx, 70, 5);
    auto const multiply = [&](auto const& factor) {
        return [&](rows_of<40> const& to) { matmul(on.ctx, to, x, transposed(factor)); };
    };
    bf16_copies<emulated> copies;
    copies.add(large.data(), 1000, 48);
    copies.add(w.data(), 40, 48);
    copies.add(wide.data(), 40, 96);
    BOOST_TEST(copies.bytes() == 0U);
    auto const part = rows(large, 700, 40);
    auto const of_w = on.by(y, multiply(w)), of_part = on.by(y, multiply(part)),
               of_columns = on.by(y, multiply(columns<48, 48>(wide))),
               shifted = on.by(y, multiply(columns<4, 48>(wide)));
    BOOST_TEST(of_w.second == 2);
    auto const ask = [&] {  // in a rehearsal
        on.ctx.rehearse(true);
        auto const scope = copies.use(on.ctx);
        matmul(on.ctx, y, x, transposed(w));
        matmul(on.ctx, y, x, transposed(part));
        on.ctx.rehearse(false);
    };
    ask();
    BOOST_TEST(copies.bytes() == 2U * 48 * (1000 + 40));
    {
        auto const scope = copies.use(on.ctx);
        BOOST_TEST(on.by(y, multiply(columns<48, 48>(wide))).second == 2);  // asks for it
    }
    BOOST_TEST(copies.bytes() == 2U * 48 * (1000 + 40 + 80));
    {
        auto const before = on.ctx.counts();
        auto const scope = copies.use(on.ctx);
        BOOST_TEST((on.ctx.counts() - before).launches == 1);
        auto const same = [&](auto const& want, auto const& found, index_t launches) {
            BOOST_TEST(found.first == want.first, boost::test_tools::per_element());
            BOOST_TEST(found.second == launches);
        };
        same(of_w, on.by(y, multiply(w)), 1);
        same(of_part, on.by(y, multiply(part)), 1);
        same(of_columns, on.by(y, multiply(columns<48, 48>(wide))), 1);
        same(shifted, on.by(y, multiply(columns<4, 48>(wide))), 2);  // which no group of the copy begins
    }
    BOOST_TEST(on.by(y, multiply(w)).second == 2);

    // A matrix that has changed is copied again.
    fill(on.ctx, w, 0.5F);
    auto const want = on.by(y, multiply(w));
    auto const scope = copies.use(on.ctx);
    BOOST_TEST(on.by(y, multiply(w)).first == want.first, boost::test_tools::per_element());
}

// What is not copied: rows that are no whole 16 bytes, what lies beside the matrices, and anything in fp32.
BOOST_AUTO_TEST_CASE(other_factors_are_left_alone) {
    device on;
    auto const w = drawn_rows<48>(on.ctx, 40, 2);
    auto const odd = drawn_rows<45>(on.ctx, 40, 3);
    bf16_copies<emulated> copies;
    copies.add(odd.data(), 40, 45);
    copies.add(w.data(), 40, 48);
    copies.add(nullptr, 0, 48);
    (void)copies.use(on.ctx);
    BOOST_TEST(copies.of(odd.data()) == nullptr);
    BOOST_TEST(copies.of(w.data()) == nullptr);
    (void)copies.use(on.ctx);
    BOOST_TEST(copies.of(w.data()) != nullptr);
    BOOST_TEST(copies.of(w.data() + 8) == copies.of(w.data()) + 8);
    BOOST_TEST(copies.of(w.data() + 4) == nullptr);
    BOOST_TEST(copies.of(w.data() + 40 * 48) == nullptr);
    BOOST_TEST(copies.of(w.data() - 8) == nullptr);

    context<emulated> plain(1, 2);
    bf16_copies<emulated> none;
    none.add(w.data(), 40, 48);
    auto const nothing = none.use(plain);
    BOOST_TEST((plain.copies == nullptr));
    BOOST_TEST(none.bytes() == 0U);
}
