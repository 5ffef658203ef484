// Values under the pointer, or at the epoch chosen by the arrow keys, of every chart of the page.
for (const plot of document.querySelectorAll('.plot')) {
  const { first, last, unit, series } = JSON.parse(plot.querySelector('script').textContent);
  const line = plot.querySelector('i'), box = plot.querySelector('output');
  const epochs = [...new Set(series.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b);
  let at = -1;
  const shown = ([, mean, low, high]) =>
    mean + unit + (low === undefined ? '' : ' (' + low + ' to ' + high + ')');
  const show = index => {
    at = Math.max(0, Math.min(epochs.length - 1, index));
    const epoch = epochs[at];
    const rows = series.flatMap(s => {
      const point = s.points.find(p => p[0] === epoch);
      return point ? [s.name + '  ' + shown(point)] : [];
    });
    const share = last > first ? (epoch - first) / (last - first) : 0.5;
    line.style.left = 100 * share + '%';
    box.textContent = ['epoch ' + epoch, ...rows].join('\n');
    line.style.display = box.style.display = 'block';
    // On the side with more room, and never beyond the plot.
    const [all, own, x] = [plot.clientWidth, box.offsetWidth, share * plot.clientWidth];
    const wanted = share < 0.5 ? x + 10 : x - 10 - own;
    box.style.left = Math.max(0, Math.min(all - own, wanted)) + 'px';
  };
  const hide = () => { line.style.display = box.style.display = 'none'; };
  plot.addEventListener('pointermove', event => {
    const { left, width } = plot.getBoundingClientRect();
    const epoch = first + (event.clientX - left) / width * (last - first);
    let nearest = epochs.findIndex(e => e >= epoch);
    if (nearest < 0) nearest = epochs.length - 1;
    if (nearest > 0 && epoch - epochs[nearest - 1] < epochs[nearest] - epoch) nearest -= 1;
    show(nearest);
  });
  plot.addEventListener('pointerleave', hide);
  plot.addEventListener('blur', hide);
  plot.addEventListener('keydown', event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); show(at + step); }
  });
}
