"use strict";
(function () {
  var box = document.getElementById("stepper");
  var data = JSON.parse(document.getElementById("frames").textContent);
  var at = 0;
  function find(name) { return document.getElementById("s-" + name); }
  function make(parent, kind, text) {
    var node = document.createElement("div");
    node.className = kind;
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }
  // Grids of cells are made once; a frame only changes their classes and numbers.
  function grids(parent, list) {
    var made = {};
    list.forEach(function (grid) {
      var width = grid.rows === 1 ? Math.min(grid.cols, 16) : grid.cols;
      var holder = make(parent, "grid");
      var rows = grid.rows === 1 ? "" : grid.rows + " x ";
      make(holder, "small mono", grid.name + "  (" + rows + grid.cols + ")");
      var cells = make(holder, "cells");
      if (width === 16) cells.className = "cells c16";
      else cells.style.gridTemplateColumns = "repeat(" + width + ", minmax(0, 1fr))";
      holder.style.flex = width < 9 ? "0 1 " + width * 2.6 + "rem" : "1 1 100%";
      cells.setAttribute("aria-hidden", "true");
      made[grid.name] = { holder: holder, cells: [] };
      for (var i = 0; i < grid.rows * grid.cols; i++) made[grid.name].cells.push(make(cells, "cell", ""));
    });
    return made;
  }
  var blocks = grids(find("blocks"), data.blocks);
  var arrays = grids(find("arrays"), data.arrays);
  var lanes = [], row = find("threads");
  if (data.threads >= 16) row.className = "lanes c16";
  else row.style.gridTemplateColumns = "repeat(" + data.threads + ", minmax(0, 1fr))";
  for (var t = 0; t < data.threads; t++) lanes.push(make(row, "lane", t));

  function hue(n) { return Math.round((n * 137.5) % 360); }
  function drawBlocks(frame) {
    Object.keys(blocks).forEach(function (name) {
      var touched = frame.touched.indexOf(name) >= 0;
      blocks[name].holder.className = touched ? "grid" : "grid idle";
      blocks[name].cells.forEach(function (cell, i) {
        var held = touched && frame.groups.length > i;
        cell.className = touched ? (held ? "cell held" : "cell r") : "cell";
        cell.textContent = held ? frame.groups[i] : "";
        cell.style.setProperty("--h", held ? hue(frame.groups[i]) : 0);
      });
    });
  }
  function drawArrays(frame) {
    var busy = {};
    Object.keys(arrays).forEach(function (name) {
      arrays[name].holder.className = "grid idle";
      arrays[name].cells.forEach(function (cell) { cell.className = "cell"; cell.textContent = ""; });
    });
    // A cell names its thread; one that several threads touch says how many do.
    function touch(list, kind) {
      var by = {};
      list.forEach(function (one) {
        var key = one[1] + " " + one[2];
        (by[key] = by[key] || { at: one, who: {} }).who[one[0]] = true;
        busy[one[0]] = true;
      });
      Object.keys(by).forEach(function (key) {
        var grid = arrays[by[key].at[1]], who = Object.keys(by[key].who);
        if (!grid || !grid.cells[by[key].at[2]]) return;
        grid.holder.className = "grid";
        var cell = grid.cells[by[key].at[2]];
        cell.textContent = who.length === 1 ? who[0] : who.length === data.threads ? "all" : who.length + "x";
        cell.className = "cell " + kind;
      });
    }
    touch(frame.reads, "r");
    touch(frame.writes, "w");
    lanes.forEach(function (lane, t) {
      lane.className = frame.barrier ? "lane wait" : busy[t] ? "lane busy" : "lane";
    });
  }
  function told(frame) {
    if (frame.barrier) return "Barrier " + frame.barrier + " of " + data.barriers + ": all " + data.threads + " threads wait here until the last one has come.";
    var n = {};
    frame.reads.concat(frame.writes).forEach(function (one) { n[one[0]] = true; });
    var many = Object.keys(n).length;
    if (!many) return "The threads have done nothing yet in this step.";
    return many + " of " + data.threads + " threads work: " + frame.reads.length + " reads, " + frame.writes.length + " writes.";
  }
  function draw() {
    var frame = data.frames[at];
    find("step").textContent = "[" + frame.label + "]";
    find("count").textContent = "moment " + (at + 1) + " of " + data.frames.length;
    find("progress").value = at + 1;
    find("block").textContent = frame.block;
    find("code").textContent = frame.code ? "line " + frame.line + ":  " + frame.code : " ";
    find("told").textContent = told(frame);
    find("back").disabled = find("first").disabled = at === 0;
    find("next").disabled = find("last").disabled = at === data.frames.length - 1;
    drawBlocks(frame);
    drawArrays(frame);
  }
  function go(to) {
    at = Math.max(0, Math.min(data.frames.length - 1, to));
    draw();
  }
  find("first").addEventListener("click", function () { go(0); });
  find("back").addEventListener("click", function () { go(at - 1); });
  find("next").addEventListener("click", function () { go(at + 1); });
  find("last").addEventListener("click", function () { go(data.frames.length - 1); });
  box.addEventListener("keydown", function (event) {
    var to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: data.frames.length - 1 }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go(to);
  });
  box.hidden = false;
  draw();
})();
