"use strict";
(function () {
  var root = document.documentElement;
  var button = document.getElementById("theme");
  function dark() {
    var set = root.getAttribute("data-theme");
    return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function label() { button.textContent = dark() ? "Light colours" : "Dark colours"; }
  button.hidden = false;
  button.addEventListener("click", function () {
    root.setAttribute("data-theme", dark() ? "light" : "dark");
    label();
  });
  label();
})();
