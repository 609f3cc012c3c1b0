const dark = matchMedia('(prefers-color-scheme: dark)'), narrow = matchMedia('(max-width: 600px)');
const ofDark = JSON.parse(document.getElementById('dark-colours').textContent);

document.querySelectorAll('time').forEach(time => { time.textContent = new Date(time.dateTime).toLocaleString(); });

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

// plotly.js is in the page as text that gzip has packed. The policy of the page holds the digest of the script.
async function unpack() {
  const bytes = Uint8Array.from(atob(document.getElementById('plotly').textContent), byte => byte.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const script = document.createElement('script');
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

// Replaces the colours of a figure, whose keys end with "color"; other texts may look like one.
function darkened(value, key = '') {
  if (typeof value === 'string') return /color$/.test(key) ? ofDark[value] ?? value : value;
  if (Array.isArray(value)) return typeof value[0] === 'object' ? value.map(item => darkened(item)) : value;
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, darkened(item, name)]));
}

async function draw(plot) {
  await loaded;
  const read = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
  const figure = dark.matches ? darkened(read) : read;
  await Plotly.react(plot, figure.data, figure.layout,
    {responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : 'hover'});
  plot.dataset.drawn = 'yes';
}

const loaded = unpack();
let drawing = Promise.resolve();
const drawLater = plot => { drawing = drawing.then(() => draw(plot)); };
const near = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting)
  .forEach(({target}) => { near.unobserve(target); drawLater(target); }), {rootMargin: '300px'});
document.querySelectorAll('.plot').forEach(plot => near.observe(plot));
dark.addEventListener('change', () => document.querySelectorAll('.plot[data-drawn]').forEach(drawLater));
addEventListener('beforeprint', () => document.querySelectorAll('.plot:not([data-drawn])').forEach(draw));
