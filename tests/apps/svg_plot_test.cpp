#include <boost/test/unit_test.hpp>

#include "run/svg_plot.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/detail/utf8.hpp"
#include "support/sentences.hpp"

using namespace calm::apps;
using calm::test::has;

namespace {

void expect(bool right, char const* what) {
    if (!right) throw std::runtime_error(what);
}

std::string unescaped(std::string_view text) {
    expect(calm::valid_prefix(text) == text.size(), "not UTF-8");
    std::string out;
    while (!text.empty()) {
        expect(static_cast<unsigned char>(text[0]) >= 0x20 || text[0] == '\n', "a control");
        expect(text[0] != '<' && text[0] != '"' && text[0] != '>', "an unescaped mark");
        std::size_t size = 1;
        if (text[0] == '&') {
            static std::map<std::string_view, char> const known{
                {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}};
            size = text.find(';') + 1;
            auto const found = known.find(text.substr(0, size));
            expect(found != known.end(), "an unknown entity");
            out += found->second;
        } else {
            out += text[0];
        }
        text.remove_prefix(size);
    }
    return out;
}

struct element {
    std::string name;
    std::map<std::string, std::string> attributes;
    std::string text;
};

element element_of(std::string_view tag) {
    element e{std::string(tag.substr(0, tag.find(' '))), {}, ""};
    tag.remove_prefix(e.name.size());
    while (!tag.empty()) {
        auto const equals = tag.find("=\""), end = tag.find('"', equals + 2);
        expect(tag[0] == ' ' && equals < end && end < tag.size(), "an attribute");
        auto const value = unescaped(tag.substr(equals + 2, end - equals - 2));
        expect(e.attributes.emplace(tag.substr(1, equals - 1), value).second, "an attribute twice");
        tag.remove_prefix(end + 1);
    }
    return e;
}

// The elements of an XML document of one root, in the order of their start tags. Throws std::runtime_error if it is not
// well-formed. Knows no comments, declarations or unescaped > in values.
std::vector<element> elements_of(std::string_view xml) {
    std::vector<element> all;
    std::vector<std::size_t> open;
    while (!xml.empty()) {
        bool const is_tag = xml[0] == '<';
        auto const size = is_tag ? xml.find('>') + 1 : std::min(xml.find('<'), xml.size());
        expect(size > 0, "an open tag");
        auto const part = xml.substr(0, size);
        xml.remove_prefix(size);
        if (!is_tag) {
            auto const text = unescaped(part);
            if (open.empty())
                expect(text == "\n", "text outside of the root");
            else
                all[open.back()].text += text;
        } else if (part[1] == '/') {
            expect(!open.empty() && part.substr(2, size - 3) == all[open.back()].name, "an end tag");
            open.pop_back();
        } else {
            expect(!open.empty() || all.empty(), "a second root");
            bool const whole = part[size - 2] == '/';
            all.push_back(element_of(part.substr(1, size - 2 - (whole ? 1 : 0))));
            if (!whole) open.push_back(all.size() - 1);
        }
    }
    expect(open.empty() && !all.empty(), "the end");
    return all;
}

std::vector<element> named(std::vector<element> const& all, std::string_view name) {
    std::vector<element> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some), [&](auto const& e) { return e.name == name; });
    return some;
}

std::ptrdiff_t texts(std::vector<element> const& all, std::string_view text) {
    return std::count_if(all.begin(), all.end(), [&](auto const& e) { return e.name == "text" && e.text == text; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(curves_have_their_points_ticks_and_names) {
    plot_panel panel{{.title = "steps", .from_zero = true, .most = 40}, {.title = "BrierLM", .from_zero = true}, {}};
    panel.curves.push_back(
        {.name = "model", .points = {{10, 2, 1}, {20, 4, 1}, {40, 8, 1}}, .dots = true, .band = true});
    panel.curves.push_back({.name = "bigrams", .points = {{0, 6}, {40, 6}}, .style = 1, .dashed = true});
    panel.curves.push_back({.name = "nothing", .points = {}, .style = 2});
    auto const all = elements_of(svg_of({"Training of mine", 1, {panel}}));
    BOOST_TEST(all[0].name == "svg");
    BOOST_TEST(named(all, "title").at(0).text == "Training of mine");
    BOOST_TEST(has(named(all, "desc").at(0).text, "model from 2 at 10 to 8 at 40; bigrams 6"));
    BOOST_TEST(named(all, "rect").at(0).attributes.at("fill") == "#fff");
    // 0 is a tick of both axes.
    for (auto const& [tick, times] : {std::pair{"0", 2}, {"2", 1}, {"10", 2}, {"20", 1}, {"40", 1}})
        BOOST_TEST(texts(all, tick) == times, tick);
    BOOST_TEST(texts(all, "5") == 0);
    BOOST_TEST(texts(all, "model") == 1);
    BOOST_TEST(texts(all, "nothing") == 0);
    auto const lines = named(all, "polyline");
    BOOST_TEST_REQUIRE(lines.size() == 2U);
    // The plot is 300 by 190 pixels; its axes end at 40 and 10.
    BOOST_TEST(lines[0].attributes.at("points") == "133,224 208,186 358,110");
    BOOST_TEST(!lines[0].attributes.contains("stroke-dasharray"));
    BOOST_TEST(lines[1].attributes.contains("stroke-dasharray"));
    BOOST_TEST(named(all, "circle").size() == 4U);  // one in the legend
    BOOST_TEST(named(all, "polygon").at(0).attributes.at("points") == "133,205 208,167 358,91 358,129 208,205 133,243");
}

// Names of runs and configurations are foreign text.
BOOST_AUTO_TEST_CASE(any_name_gives_valid_xml) {
    std::string const name = "</text><script>\"'&amp;\x01\x1b\xff\xc3\xa9\xef\xbf\xbe";
    plot_panel const panel{{.title = name}, {.title = name}, {{.name = name, .points = {{1, 1}, {2, 2}}}}};
    auto const all = elements_of(svg_of({name, 1, {panel}}));
    std::string const shown = "</text><script>\"'&amp;\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd";
    BOOST_TEST(texts(all, shown) == 4);  // title, legend and both axes
    BOOST_TEST(named(all, "title").at(0).text == shown);
    BOOST_TEST(named(all, "script").empty());
    // A name too long for its place is cut between characters.
    std::string wide;
    for (int i = 0; i < 200; ++i) wide += "\xc3\xa9";
    BOOST_CHECK_NO_THROW(elements_of(svg_of({wide, 1, {{{}, {}, {{.name = wide, .points = {{1, 1}, {2, 2}}}}}}})));
}

BOOST_AUTO_TEST_CASE(only_finite_numbers_are_drawn) {
    double const infinity = std::numeric_limits<double>::infinity();
    std::vector<plot_point> const points{{1, 1},
                                         {2, std::nan(""), 1},
                                         {3, infinity, 1},
                                         {4, 1e308},
                                         {infinity, 1},
                                         {5, 2, std::nan("")},
                                         {6, 3, infinity},
                                         {7, -1},
                                         {std::nan(""), 1},
                                         {8, 4, 1e150},
                                         {9, 1e-320}};
    for (int const logarithm : {0, 10}) {
        plot_panel panel{{.title = "steps"}, {.title = "loss", .logarithm = logarithm}, {}};
        for (bool const band : {false, true})
            panel.curves.push_back({.name = "model", .points = points, .dots = true, .band = band});
        for (auto const& e : elements_of(svg_of({"run", 1, {panel, {}}})))
            for (auto const& [key, value] : e.attributes)
                if (key != "fill" && key != "text-anchor" && key != "font-family")
                    BOOST_TEST((!has(value, "nan") && !has(value, "inf")), e.name << " " << key << ": " << value);
        BOOST_TEST(named(elements_of(svg_of({"run", 1, {panel}})), "polyline").size() == 2U);
    }
    BOOST_TEST(texts(elements_of(svg_of({"run", 1, {{}}})), "no values") == 1);
}
