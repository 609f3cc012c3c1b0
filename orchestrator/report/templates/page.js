document.querySelectorAll('table.sortable th').forEach(header => header.addEventListener('click', () => {
  const body = header.closest('table').tBodies[0], column = header.cellIndex;
  const up = header.dataset.up !== '1';
  header.dataset.up = up ? '1' : '0';
  const key = row => { const text = row.cells[column].dataset.v ?? row.cells[column].textContent;
    const number = parseFloat(text); return text === '' ? null : isNaN(number) ? text : number; };
  [...body.rows].sort((a, b) => { const x = key(a), y = key(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1); }).forEach(row => body.append(row));
}));
const plots = [...document.querySelectorAll('.plot')];
function drawNext() {
  const plot = plots.shift();
  if (!plot) { document.body.dataset.drawn = 'yes'; return; }
  const figure = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
  Plotly.newPlot(plot, figure.data, figure.layout, {responsive: true, displaylogo: false})
    .then(() => setTimeout(drawNext, 0));
}
setTimeout(drawNext, 0);
