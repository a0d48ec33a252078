// Formulas: KaTeX renders the elements that pymdownx.arithmatex marked, \(...\) in a line and \[...\] as a block.
for (const formula of document.querySelectorAll(".arithmatex"))
  katex.render(formula.textContent.trim().slice(2, -2), formula, {displayMode: formula.tagName === "DIV"});
