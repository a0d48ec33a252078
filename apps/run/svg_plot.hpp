#pragma once
// Draws a figure as SVG.

#include <string>
#include <string_view>

#include "run/figure.hpp"

namespace calm::apps {

// Text as XML content or attribute. Characters that XML forbids and bytes that are not UTF-8 become U+FFFD.
std::string xml_text(std::string_view text);

// A complete SVG document on a white background, with text as text. It needs no style sheet, script or font. Screen
// readers read its title and description (figure_in_words()).
std::string svg_of(plot_figure const& figure);

}  // namespace calm::apps
