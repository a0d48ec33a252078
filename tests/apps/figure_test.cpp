#include <boost/test/unit_test.hpp>

#include "run/figure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/sentences.hpp"

using namespace calm::apps;
using calm::test::has;

namespace {

plot_panel panel_of(std::vector<plot_point> points, int logarithm) {
    return {{.title = "steps"}, {.title = "loss", .logarithm = logarithm}, {{.name = "model", .points = points}}};
}

std::string texts_of(axis_scale const& scale) {
    std::string texts;
    for (auto const& tick : scale.ticks) texts += (texts.empty() ? "" : ", ") + tick.text;
    return texts;
}

// 1, 2 or 5 times a power of ten.
bool is_round(double step) {
    double const digit = step / std::pow(10, std::floor(std::log10(step) + 1e-9));
    for (double const n : {1, 2, 5, 10})
        if (std::abs(digit - n) < 1e-6) return true;
    return false;
}

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_of_axes_are_short) {
    for (auto const& [n, text] : {std::pair{0.0, "0"},
                                  {0.25, "0.25"},
                                  {200.0, "200"},
                                  {1500.0, "1.5 k"},
                                  {500000.0, "500 k"},
                                  {1.5e6, "1.5 M"},
                                  {2e9, "2 G"}})
        BOOST_TEST(tick_text(n) == text);
}

BOOST_AUTO_TEST_CASE(a_linear_axis_has_few_round_ticks) {
    auto tokens = panel_of({{1, 1}, {2, 2}}, 0);
    tokens.x = {.title = "tokens", .from_zero = true, .most = 2e6};
    BOOST_TEST(texts_of(scale_of_x(tokens)) == "0, 500 k, 1 M, 1.5 M, 2 M");
    BOOST_TEST(scale_of_x(tokens).high == 2e6);
    for (double most = 1e-6; most < 1e9; most *= 1.37)
        for (double const low : {0.0, -0.3 * most, 0.97 * most}) {
            auto const [bottom, top, logarithm, ticks] = scale_of_y(panel_of({{0, low}, {1, most}}, 0));
            BOOST_TEST_REQUIRE((ticks.size() >= 3 && ticks.size() <= 7), low << " to " << most << ": " << ticks.size());
            BOOST_TEST(is_round(ticks[1].at - ticks[0].at), low << " to " << most);
            BOOST_TEST((bottom <= low && top >= most), low << " to " << most);
            for (std::size_t i = 1; i < ticks.size(); ++i) BOOST_TEST(ticks[i].text != ticks[i - 1].text);
        }
}

BOOST_AUTO_TEST_CASE(a_logarithmic_axis_has_powers) {
    BOOST_TEST(texts_of(scale_of_y(panel_of({{0, 0.02}, {1, 900}}, 10))) == "0.1, 1, 10, 100, 1 k");
    BOOST_TEST(texts_of(scale_of_y(panel_of({{0, 2}, {1, 30}}, 10))) == "2, 5, 10, 20");
    BOOST_TEST(texts_of(scale_of_y(panel_of({{0, 1}, {1, 8}}, 2))) == "1, 2, 4, 8");
    BOOST_TEST(scale_of_y(panel_of({{0, 1}, {1, 100}}, 10)).place(10) == 0.5, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(every_range_can_be_drawn) {
    double const infinity = std::numeric_limits<double>::infinity();
    for (int const logarithm : {0, 2, 10})
        for (double const a : {0.0, 5e-324, 1e-150, 1.0, 1.0 + 1e-15, 1e150, 1e308, -1e150, infinity, std::nan("")})
            for (double const b : {0.0, 1e-150, 1.0, 3.0, 1e150, -infinity}) {
                auto const scale = scale_of_y(panel_of({{0, a}, {1, b, infinity}}, logarithm));
                BOOST_TEST((std::isfinite(scale.low) && scale.low < scale.high && std::isfinite(scale.high)));
                BOOST_TEST(scale.ticks.size() <= 8U, logarithm << " " << a << " " << b);
                for (auto const& tick : scale.ticks) {
                    double const place = scale.place(tick.at);
                    BOOST_TEST((place >= 0 && place <= 1), logarithm << " " << a << " " << b);
                }
            }
}

BOOST_AUTO_TEST_CASE(a_long_curve_keeps_its_outliers) {
    std::vector<plot_point> points;
    for (int i = 0; i < 100'000; ++i) points.push_back({static_cast<double>(i), i == 4321 ? 50.0 : std::sin(i)});
    points.push_back({1, std::nan("")});
    auto const kept = thinned(points, 100);
    BOOST_TEST((kept.size() > 300 && kept.size() <= 400), kept.size());
    BOOST_TEST(kept.front().x == 0);
    BOOST_TEST(kept.back().x == 99'999);
    BOOST_TEST(std::any_of(kept.begin(), kept.end(), [](auto const& p) { return p.x == 4321 && p.y == 50; }));
    BOOST_TEST(std::is_sorted(kept.begin(), kept.end(), [](auto const& a, auto const& b) { return a.x < b.x; }));
}

BOOST_AUTO_TEST_CASE(a_figure_has_words) {
    auto const panel = panel_of({{1, 6}, {2000, 3.5}}, 0);
    BOOST_TEST(figure_in_words({"run", 2, {panel, panel}}) == "loss by steps: model from 6 at 1 to 3.5 at 2 k.");
    BOOST_TEST(figure_in_words({"run", 1, {panel_of({}, 0)}}) == "loss by steps: no values.");
}
