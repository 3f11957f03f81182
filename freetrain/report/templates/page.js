// Plotly writes colours into the drawing, so a change of light and dark has to
// reach it by hand; everything else on the page follows the style sheet.
const dark = matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const ink = dark.matches ? "#c4c9d2" : "#4a505b";
  const paper = dark.matches ? "#1d2128" : "#ffffff";
  for (const drawing of document.querySelectorAll(".plotly-graph-div")) {
    Plotly.relayout(drawing, {
      "font.color": ink,
      "hoverlabel.bgcolor": paper,
      "hoverlabel.font.color": ink,
    });
  }
}
// Each drawing was made before what stands beside it was there, so its width is
// right only now.
function fit() {
  for (const drawing of document.querySelectorAll(".plotly-graph-div")) {
    Plotly.Plots.resize(drawing);
  }
}
dark.addEventListener("change", paint);
addEventListener("load", () => { paint(); fit(); });
