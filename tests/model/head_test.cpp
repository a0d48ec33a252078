#include "calm/model/head.hpp"

#include <boost/test/unit_test.hpp>

#include "calm/model/config.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/heads.hpp"
#include "support/sentences.hpp"

using namespace calm;
using calm::test::has;

namespace {

struct own_objective {
    index_t samples = 3;
    double weight = 0.5;
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(number_field{.key = "num_samples", .what = "samples", .least = 1, .most = 9, .option = "samples"},
                self.samples);
        visitor(number_field{.key = "weight",
                             .what = "weight",
                             .least = 0,
                             .most = 1,
                             .without_ends = true,
                             .published = false,
                             .option = "weight"},
                self.weight);
    }
};

template <int Number> struct own_head {
    index_t width = 7;
    static constexpr std::string_view name = Number == 0 ? "energy" : "own";
    static constexpr std::string_view architecture = Number == 1 ? "EnergyTransformer" : "OwnTransformer";
    using objective = own_objective;
    [[nodiscard]] constexpr head_flops flops(head_dimensions const& at) const {
        return {static_cast<double>(at.D), static_cast<double>(at.L), static_cast<double>(width)};
    }
    template <class Self, class Visitor> static constexpr void visit_fields(Self& self, Visitor&& visitor) {
        visitor(number_field{.key = "width", .what = "width", .least = 2, .most = 8}, self.width);
    }
    friend constexpr bool operator==(own_head const&, own_head const&) = default;
};
static_assert(generative_head<own_head<2>> && generative_head<energy> && generative_head<flow>);
static_assert(!generative_head<own_objective> && !head_objective<own_head<2>>);

constexpr configuration<> base{.autoencoder = {.latent_size = 5}, .hidden_size = 24};

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_are_visited_without_their_type) {
    auto fields = field_values::of(own_objective{.samples = 4, .weight = 0.25});
    BOOST_REQUIRE(fields.size() == 2U);
    BOOST_TEST(fields[0].field.key == "num_samples");
    BOOST_TEST((fields[0].whole && !fields[1].whole));
    BOOST_TEST(text_of(fields[0]) == "4");
    BOOST_TEST(text_of(fields[1]) == "0.25");
    fields.find_option("samples")->value = 9;
    auto const back = fields.as<own_objective>();
    BOOST_TEST(back.samples == 9);
    BOOST_TEST(back.weight == 0.25);
    BOOST_TEST((fields.find("samples") == nullptr && fields.find_option("num_samples") == nullptr));
    BOOST_TEST(any_objective(own_objective{.samples = 6}).samples() == 6);
    // Fields missing from the values keep the type's defaults; values that the type lacks are ignored.
    auto const other = static_cast<energy_objective>(any_objective(own_objective{.samples = 6}));
    BOOST_TEST(other.samples == 6);
    BOOST_TEST(other.targets == energy_objective{}.targets);
}

BOOST_AUTO_TEST_CASE(a_field_states_its_range) {
    auto const width = [](double value) {
        auto fields = field_values::of(own_head<2>{});
        fields[0].value = value;
        return fields[0].is_allowed();
    };
    BOOST_TEST((width(2) && width(8) && !width(1) && !width(9)));
    auto const weight = [](double value) {
        auto fields = field_values::of(own_objective{.weight = value});
        return fields[1].is_allowed();
    };
    BOOST_TEST((weight(1e-9) && weight(0.999) && !weight(0) && !weight(1)));
    static_assert(check::sizes_are_allowed(own_head<2>{.width = 8}) &&
                  !check::sizes_are_allowed(own_head<2>{.width = 9}));
}

BOOST_AUTO_TEST_CASE(a_configuration_keeps_its_sizes_with_another_head) {
    constexpr auto c = with_head(base, own_head<2>{.width = 3});
    static_assert(c.hidden_size == base.hidden_size && c.autoencoder == base.autoencoder && c.head.width == 3);
    auto const erased = with_any_head(c);
    BOOST_TEST(erased.head.name() == "own");
    BOOST_TEST(erased.head.sizes.find("width")->value == 3);
    BOOST_TEST((erased == with_any_head(c)));
    BOOST_TEST((erased != with_any_head(with_head(base, own_head<2>{.width = 4}))));
    BOOST_TEST((erased.head != with_any_head(base).head));
    BOOST_TEST(flops::head(erased).shared == 24);
    BOOST_TEST(flops::head(erased).trained == 5);
    BOOST_TEST(flops::head(erased).drawn == 3);
    BOOST_TEST(flops::head(with_any_head(base)).drawn == flops::head(base).drawn);
    BOOST_TEST(any_head().name() == "");
}

BOOST_AUTO_TEST_CASE(a_head_is_registered_once_under_unique_names) {
    for (auto const* const name : {"energy", "flow", "diffusion", "margin", "drafted"}) {
        BOOST_TEST(head_named(name).name == name);
        BOOST_TEST(find_head(head_named(name).architecture) == &head_named(name));
    }
    BOOST_TEST(find_head("own") == nullptr);
    auto const before = known_heads().size();
    add_head<energy>();
    BOOST_TEST(known_heads().size() == before);
    add_head<own_head<2>>();
    add_head<own_head<2>>();
    BOOST_TEST(known_heads().size() == before + 1);
    BOOST_TEST(find_head("OwnTransformer") == &head_traits_of<own_head<2>>());
    auto const refused = [](auto&& add) -> std::string {
        try {
            add();
        } catch (error const& wrong) {
            BOOST_TEST((wrong.code() == errc::usage));
            return wrong.what();
        }
        return "";
    };
    BOOST_TEST(
        has(refused([] { add_head<own_head<0>>(); }), "expected a name and an architecture that no other head has"));
    BOOST_TEST(has(refused([] { add_head<own_head<1>>(); }), "found own and EnergyTransformer"));
}
