BEGIN TRANSACTION;
CREATE TABLE attempt (
	id TEXT NOT NULL, 
	trial_key TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	cause TEXT, 
	node TEXT, 
	started_at FLOAT NOT NULL, 
	ended_at FLOAT, 
	row_digest BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(trial_key) REFERENCES trial ("key")
);
INSERT INTO "attempt" VALUES('half-0382c659-0.1','half-0382c659-0',1,'ENDED',NULL,'vm',1.79532914499321579935e+09,1.79532916884692692752e+09,662359553733381397);
INSERT INTO "attempt" VALUES('half-0382c659-1.1','half-0382c659-1',1,'ENDED',NULL,'vm',1.79532916885831880567e+09,1.79532916900203156468e+09,988082727774618818);
INSERT INTO "attempt" VALUES('half-0382c659-2.1','half-0382c659-2',1,'RUNNING',NULL,'vm',1.79532916901139044758e+09,NULL,59312564427608731);
CREATE TABLE checkpoint (
	trial_key TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	step BIGINT NOT NULL, 
	path TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	bytes BIGINT NOT NULL, 
	metrics TEXT NOT NULL, 
	row_digest BIGINT NOT NULL, 
	PRIMARY KEY (trial_key, kind, step), 
	FOREIGN KEY(trial_key) REFERENCES trial ("key")
)
 WITHOUT ROWID

;
INSERT INTO "checkpoint" VALUES('half-0382c659-0','best',100,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-0/step-000000100','6c8ff6f88d9700ed8e3234645fa4682c8414c12fcb95d876e46e384d91f430e2',17405,'{"hidden_norm/layer_0":1.0094671249389648,"learning_rate":0.001349983154796064,"seconds/compile":15.556218013000489,"seconds/evaluate":2.451231259999986,"seconds/train":0.2143758990000606,"tokens_per_second":25469.280947474683,"train/accuracy":0.14,"train/loss":2.3085965609550474,"val/accuracy":0.125,"val/loss":2.307710886001587}',2477379072667827906);
INSERT INTO "checkpoint" VALUES('half-0382c659-0','best',200,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-0/step-000000200','54c73827b5b97e11da024a9c16e78804aa65c0521443c4446126462c3dd839a5',17412,'{"hidden_norm/layer_0":0.940361499786377,"learning_rate":0.0011558596743270755,"seconds/compile":2.4309306280001692,"seconds/evaluate":0.003616559999954916,"seconds/train":0.020028246000038052,"tokens_per_second":272614.98585495836,"train/accuracy":0.17,"train/loss":2.2904915809631348,"val/accuracy":0.1625,"val/loss":2.3086850166320803}',2001543569599423714);
INSERT INTO "checkpoint" VALUES('half-0382c659-0','last',500,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-0/step-000000500','8ff1ae830fdc0b01946319e2023c4f762f6665f041b87d415ed7744290ecabad',17396,'{"hidden_norm/layer_0":1.0030516386032104,"learning_rate":0.0001146814101957716,"seconds/compile":0.0,"seconds/evaluate":0.0023192579997157736,"seconds/train":0.01843088399982662,"tokens_per_second":296241.8948570976,"train/accuracy":0.225,"train/loss":2.2486340951919557,"val/accuracy":0.125,"val/loss":2.298393440246582}',3880438406010161027);
INSERT INTO "checkpoint" VALUES('half-0382c659-0','last',600,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-0/step-000000600','6ca35029aca6ad743dbe60f96288328755a8a2785fbb0f281f49fc852a8f1231',17396,'{"hidden_norm/layer_0":0.858464241027832,"learning_rate":1.157439299959151e-08,"seconds/compile":0.0,"seconds/evaluate":0.0018381100003352913,"seconds/train":0.05048531100010223,"tokens_per_second":108150.26968911698,"train/accuracy":0.19,"train/loss":2.251847498416901,"val/accuracy":0.1375,"val/loss":2.2985626697540282}',1114319735552536668);
INSERT INTO "checkpoint" VALUES('half-0382c659-1','best',100,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-1/step-000000100','910de484bb22e88a5cc87f3866fd05f5d1461cf53674f3da9dcc3e5e90bb96dc',17398,'{"hidden_norm/layer_0":0.8666563034057617,"learning_rate":0.0005232758703641593,"seconds/compile":0.0,"seconds/evaluate":0.0018675050000638294,"seconds/train":0.012636971999654634,"tokens_per_second":432065.5296339361,"train/accuracy":0.1075,"train/loss":2.340319879055023,"val/accuracy":0.125,"val/loss":2.3357563495635985}',3037427872739963742);
INSERT INTO "checkpoint" VALUES('half-0382c659-1','last',200,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-1/step-000000200','478bad68ee60ad87b4aae7107afc2f0b28ccca319ee3ef5567dd6ae5c65080ab',17393,'{"hidden_norm/layer_0":0.7056052684783936,"learning_rate":0.0004480303905438632,"seconds/compile":0.0,"seconds/evaluate":0.0057985909998024,"seconds/train":0.016415373000199907,"tokens_per_second":332615.0432240259,"train/accuracy":0.13,"train/loss":2.319150094985962,"val/accuracy":0.0625,"val/loss":2.328912687301636}',1339197132173932547);
INSERT INTO "checkpoint" VALUES('half-0382c659-1','last',300,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-1/step-000000300','2ed49601dfdf90885fb99436b8a9141f790a61570eb3a4570560ef24dfdb34a5',17400,'{"hidden_norm/layer_0":0.9541482329368591,"learning_rate":0.0003125747316516936,"seconds/compile":0.0,"seconds/evaluate":0.0020168840001133503,"seconds/train":0.025161174000004394,"tokens_per_second":217001.00321229233,"train/accuracy":0.1175,"train/loss":2.3048899745941163,"val/accuracy":0.0875,"val/loss":2.324087047576904}',1777263694796932204);
INSERT INTO "checkpoint" VALUES('half-0382c659-2','best',100,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-2/step-000000100','604b10022210c28497be6253c9d2a6f8ad76c3dc8aed9ca08d2a3c80b2386376',17394,'{"hidden_norm/layer_0":1.2595436573028564,"learning_rate":0.00014006171841174364,"seconds/compile":0.0,"seconds/evaluate":0.002624386999741546,"seconds/train":0.02124051700002383,"tokens_per_second":257055.88992932116,"train/accuracy":0.12,"train/loss":2.3022674036026003,"val/accuracy":0.1,"val/loss":2.305864095687866}',242256115326178619);
INSERT INTO "checkpoint" VALUES('half-0382c659-2','last',100,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-2/step-000000100','604b10022210c28497be6253c9d2a6f8ad76c3dc8aed9ca08d2a3c80b2386376',17394,'{"hidden_norm/layer_0":1.2595436573028564,"learning_rate":0.00014006171841174364,"seconds/compile":0.0,"seconds/evaluate":0.002624386999741546,"seconds/train":0.02124051700002383,"tokens_per_second":257055.88992932116,"train/accuracy":0.12,"train/loss":2.3022674036026003,"val/accuracy":0.1,"val/loss":2.305864095687866}',910828125278639139);
INSERT INTO "checkpoint" VALUES('half-0382c659-2','last',200,'/srv/sweeps/mlruns/checkpoints/half-0382c659/half-0382c659-2/step-000000200','adde9fd3433779b4dc3c7731067cb41043633366fb2d611f49a89c61e3a6a543',17393,'{"hidden_norm/layer_0":1.1981388330459595,"learning_rate":0.00011992127110715955,"seconds/compile":0.0,"seconds/evaluate":0.002729643999828113,"seconds/train":0.01149495100025888,"tokens_per_second":474991.150451797,"train/accuracy":0.115,"train/loss":2.3001346015930175,"val/accuracy":0.1,"val/loss":2.307348442077637}',247519894612210906);
CREATE TABLE lease (
	sweep_id TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	PRIMARY KEY (sweep_id)
);
CREATE TABLE ledger_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0002');
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	sweep_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	run TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	at_ms BIGINT NOT NULL, 
	delivered BOOLEAN NOT NULL, 
	row_digest BIGINT NOT NULL, 
	FOREIGN KEY(sweep_id) REFERENCES sweep (id)
);
INSERT INTO "outbox" VALUES(1,'half-0382c659','start','half-0382c659','{"dataset":{"digest":"70cfb20ac24dbbf4bb01533c6e158aabb662b304577fc476f021488049850359","name":"listops","source":"ListOps generated by LRA''s rule (seed 0), 400/80/80 expressions of 6 to 29 tokens"},"name":"half-0382c659","parameters":{},"started_ms":1795329135417,"tags":{"command":"sweep.py half.yaml","data.comparable":"False","data.digest":"70cfb20ac24dbbf4bb01533c6e158aabb662b304577fc476f021488049850359","data.note":"other lengths or sizes than published: accuracy does not compare with papers","data.source":"ListOps generated by LRA''s rule (seed 0), 400/80/80 expressions of 6 to 29 tokens","layer":"rotrnn","mlflow.note.content":"rotrnn on listops. Data: ListOps generated by LRA''s rule (seed 0), 400/80/80 expressions of 6 to 29 tokens.","mlflow.source.git.commit":"unknown","objective":"maximize val/accuracy","sampler.seed":"0","sweep.digest":"0382c6594b6fcc8e1301c13e029be0e4cbe59b69afcf50512b7e6cab4c423432","sweep.id":"half-0382c659","sweep.name":"half","sweep.profile":"none","sweep.state":"RUNNING","task":"listops","version.flax":"0.12.8","version.jax":"0.10.2","version.jaxlib":"0.10.2","version.mlflow":"3.17.2","version.numpy":"2.4.6","version.optax":"0.2.8","version.optuna":"5.0.0","version.python":"3.11.7","version.ray":"2.60.0","version.sqlalchemy":"2.1.9"},"texts":{"search-space.yaml":"# A sweep of a few kilobytes: what a ledger written by an earlier version is resumed with.\ntask: listops\ndata: {length: 32, min_length: 5, max_length: 30, examples: 400, held_out: 80}\nmodel: {layer: rotrnn, depth: 1, d_model: 4, d_state: 4, heads: 2}\ntraining: {steps: 600, interval: 100, batch_size: 4, warmup: 0.1, recurrent_learning_rate: 1e-3}\nevaluate: {examples: 80}\nsearch:\n  learning_rate: {log_uniform: [1e-4, 1e-2]}\n  gamma_init.min: {uniform: [0.1, 0.9]}\nobjective: {maximize: val/accuracy}\nsampler: {tpe: {seed: 0}}\nscheduler: {asha: {reduction: 2, grace: 0.5}}\nbudget: {trials: 4}\nresources: {cpu: 1, concurrent: 1}\n"}}',1795329135417,1,2573063683962603757);
INSERT INTO "outbox" VALUES(2,'half-0382c659','start','half-0382c659-0','{"dataset":null,"name":"0000","parameters":{"gamma_init.min":"0.5284794789018628","learning_rate":"0.0013675077421910968","seed":"1725501518","steps":"600"},"started_ms":1795329144985,"tags":{"layer":"rotrnn","sweep.id":"half-0382c659","task":"listops","trial.key":"half-0382c659-0","trial.number":"0","trial.role":"search","trial.state":"RUNNING"},"texts":{}}',1795329144985,1,3829598207476344229);
INSERT INTO "outbox" VALUES(3,'half-0382c659','metrics','half-0382c659-0','{"step":100,"values":{"hidden_norm/layer_0":1.0094671249389648,"learning_rate":0.001349983154796064,"tokens_per_second":25469.280947474683,"train/accuracy":0.14,"train/loss":2.3085965609550474,"val/accuracy":0.125,"val/loss":2.307710886001587}}',1795329168533,0,1997392213884077127);
INSERT INTO "outbox" VALUES(4,'half-0382c659','metrics','half-0382c659-0','{"step":200,"values":{"hidden_norm/layer_0":0.940361499786377,"learning_rate":0.0011558596743270755,"tokens_per_second":272614.98585495836,"train/accuracy":0.17,"train/loss":2.2904915809631348,"val/accuracy":0.1625,"val/loss":2.3086850166320803}}',1795329168587,0,1594315463648885764);
INSERT INTO "outbox" VALUES(5,'half-0382c659','metrics','half-0382c659-0','{"step":300,"values":{"hidden_norm/layer_0":0.8180774450302124,"learning_rate":0.000806401832960546,"tokens_per_second":309000.33073147613,"train/accuracy":0.1725,"train/loss":2.2720292949676515,"val/accuracy":0.125,"val/loss":2.3053677082061768}}',1795329168634,0,3425405154587761313);
INSERT INTO "outbox" VALUES(6,'half-0382c659','metrics','half-0382c659-0','{"step":400,"values":{"hidden_norm/layer_0":0.8325413465499878,"learning_rate":0.00041658992995508015,"tokens_per_second":289789.8439835983,"train/accuracy":0.18,"train/loss":2.2580018854141235,"val/accuracy":0.125,"val/loss":2.299618625640869}}',1795329168714,0,1229996222910344981);
INSERT INTO "outbox" VALUES(7,'half-0382c659','metrics','half-0382c659-0','{"step":500,"values":{"hidden_norm/layer_0":1.0030516386032104,"learning_rate":0.0001146814101957716,"tokens_per_second":296241.8948570976,"train/accuracy":0.225,"train/loss":2.2486340951919557,"val/accuracy":0.125,"val/loss":2.298393440246582}}',1795329168753,0,1518762388588897867);
INSERT INTO "outbox" VALUES(8,'half-0382c659','metrics','half-0382c659-0','{"step":600,"values":{"hidden_norm/layer_0":0.858464241027832,"learning_rate":1.157439299959151e-08,"tokens_per_second":108150.26968911698,"train/accuracy":0.19,"train/loss":2.251847498416901,"val/accuracy":0.1375,"val/loss":2.2985626697540282}}',1795329168826,0,724295155542680552);
INSERT INTO "outbox" VALUES(9,'half-0382c659','end','half-0382c659-0','{"status":"FINISHED","step":600,"tags":{"trial.state":"COMPLETE","trial.steps":"600"},"values":{"objective":0.1625}}',1795329168847,0,1287754730358876209);
INSERT INTO "outbox" VALUES(10,'half-0382c659','start','half-0382c659-1','{"dataset":null,"name":"0001","parameters":{"gamma_init.min":"0.8785784404183125","learning_rate":"0.0005300686787215008","seed":"1021735874","steps":"600"},"started_ms":1795329168854,"tags":{"layer":"rotrnn","sweep.id":"half-0382c659","task":"listops","trial.key":"half-0382c659-1","trial.number":"1","trial.role":"search","trial.state":"RUNNING"},"texts":{}}',1795329168854,0,4263852843228983423);
INSERT INTO "outbox" VALUES(11,'half-0382c659','metrics','half-0382c659-1','{"step":100,"values":{"hidden_norm/layer_0":0.8666563034057617,"learning_rate":0.0005232758703641593,"tokens_per_second":432065.5296339361,"train/accuracy":0.1075,"train/loss":2.340319879055023,"val/accuracy":0.125,"val/loss":2.3357563495635985}}',1795329168914,0,547068356187332157);
INSERT INTO "outbox" VALUES(12,'half-0382c659','metrics','half-0382c659-1','{"step":200,"values":{"hidden_norm/layer_0":0.7056052684783936,"learning_rate":0.0004480303905438632,"tokens_per_second":332615.0432240259,"train/accuracy":0.13,"train/loss":2.319150094985962,"val/accuracy":0.0625,"val/loss":2.328912687301636}}',1795329168950,0,2047696343692780084);
INSERT INTO "outbox" VALUES(13,'half-0382c659','metrics','half-0382c659-1','{"step":300,"values":{"hidden_norm/layer_0":0.9541482329368591,"learning_rate":0.0003125747316516936,"tokens_per_second":217001.00321229233,"train/accuracy":0.1175,"train/loss":2.3048899745941163,"val/accuracy":0.0875,"val/loss":2.324087047576904}}',1795329168991,0,2270277907031766363);
INSERT INTO "outbox" VALUES(14,'half-0382c659','end','half-0382c659-1','{"status":"FINISHED","step":300,"tags":{"trial.state":"PRUNED","trial.steps":"300"},"values":{"objective":0.125}}',1795329169002,0,4232652109028396076);
INSERT INTO "outbox" VALUES(15,'half-0382c659','start','half-0382c659-2','{"dataset":null,"name":"0002","parameters":{"gamma_init.min":"0.5506512278719247","learning_rate":"0.00014187990379644388","seed":"597998264","steps":"600"},"started_ms":1795329169007,"tags":{"layer":"rotrnn","sweep.id":"half-0382c659","task":"listops","trial.key":"half-0382c659-2","trial.number":"2","trial.role":"search","trial.state":"RUNNING"},"texts":{}}',1795329169007,0,1192969009889919402);
INSERT INTO "outbox" VALUES(16,'half-0382c659','metrics','half-0382c659-2','{"step":100,"values":{"hidden_norm/layer_0":1.2595436573028564,"learning_rate":0.00014006171841174364,"tokens_per_second":257055.88992932116,"train/accuracy":0.12,"train/loss":2.3022674036026003,"val/accuracy":0.1,"val/loss":2.305864095687866}}',1795329169069,0,1579286544281373622);
INSERT INTO "outbox" VALUES(17,'half-0382c659','metrics','half-0382c659-2','{"step":200,"values":{"hidden_norm/layer_0":1.1981388330459595,"learning_rate":0.00011992127110715955,"tokens_per_second":474991.150451797,"train/accuracy":0.115,"train/loss":2.3001346015930175,"val/accuracy":0.1,"val/loss":2.307348442077637}}',1795329169101,0,2617527825644593349);
CREATE TABLE reading (
	trial_key TEXT NOT NULL, 
	step BIGINT NOT NULL, 
	split TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	metrics TEXT NOT NULL, 
	row_digest BIGINT NOT NULL, 
	PRIMARY KEY (trial_key, step, split, at), 
	FOREIGN KEY(trial_key) REFERENCES trial ("key")
)
 WITHOUT ROWID

;
CREATE TABLE report (
	trial_key TEXT NOT NULL, 
	step BIGINT NOT NULL, 
	attempt_id TEXT NOT NULL, 
	metrics TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	row_digest BIGINT NOT NULL, 
	PRIMARY KEY (trial_key, step), 
	FOREIGN KEY(trial_key) REFERENCES trial ("key")
)
 WITHOUT ROWID

;
INSERT INTO "report" VALUES('half-0382c659-0',100,'half-0382c659-0.1','{"hidden_norm/layer_0":1.0094671249389648,"learning_rate":0.001349983154796064,"seconds/compile":15.556218013000489,"seconds/evaluate":2.451231259999986,"seconds/train":0.2143758990000606,"tokens_per_second":25469.280947474683,"train/accuracy":0.14,"train/loss":2.3085965609550474,"val/accuracy":0.125,"val/loss":2.307710886001587}',1.79532916853258371356e+09,3609502464483150489);
INSERT INTO "report" VALUES('half-0382c659-0',200,'half-0382c659-0.1','{"hidden_norm/layer_0":0.940361499786377,"learning_rate":0.0011558596743270755,"seconds/compile":2.4309306280001692,"seconds/evaluate":0.003616559999954916,"seconds/train":0.020028246000038052,"tokens_per_second":272614.98585495836,"train/accuracy":0.17,"train/loss":2.2904915809631348,"val/accuracy":0.1625,"val/loss":2.3086850166320803}',1.79532916858735060693e+09,1468821894843803105);
INSERT INTO "report" VALUES('half-0382c659-0',300,'half-0382c659-0.1','{"hidden_norm/layer_0":0.8180774450302124,"learning_rate":0.000806401832960546,"seconds/compile":0.0,"seconds/evaluate":0.002254146999803197,"seconds/train":0.017669884000042657,"tokens_per_second":309000.33073147613,"train/accuracy":0.1725,"train/loss":2.2720292949676515,"val/accuracy":0.125,"val/loss":2.3053677082061768}',1.79532916863448143004e+09,3109330721866894308);
INSERT INTO "report" VALUES('half-0382c659-0',400,'half-0382c659-0.1','{"hidden_norm/layer_0":0.8325413465499878,"learning_rate":0.00041658992995508015,"seconds/compile":0.0,"seconds/evaluate":0.00267086499979996,"seconds/train":0.018841239999801473,"tokens_per_second":289789.8439835983,"train/accuracy":0.18,"train/loss":2.2580018854141235,"val/accuracy":0.125,"val/loss":2.299618625640869}',1.79532916871379518504e+09,1421071351656811092);
INSERT INTO "report" VALUES('half-0382c659-0',500,'half-0382c659-0.1','{"hidden_norm/layer_0":1.0030516386032104,"learning_rate":0.0001146814101957716,"seconds/compile":0.0,"seconds/evaluate":0.0023192579997157736,"seconds/train":0.01843088399982662,"tokens_per_second":296241.8948570976,"train/accuracy":0.225,"train/loss":2.2486340951919557,"val/accuracy":0.125,"val/loss":2.298393440246582}',1.79532916875266861916e+09,4531694524111602455);
INSERT INTO "report" VALUES('half-0382c659-0',600,'half-0382c659-0.1','{"hidden_norm/layer_0":0.858464241027832,"learning_rate":1.157439299959151e-08,"seconds/compile":0.0,"seconds/evaluate":0.0018381100003352913,"seconds/train":0.05048531100010223,"tokens_per_second":108150.26968911698,"train/accuracy":0.19,"train/loss":2.251847498416901,"val/accuracy":0.1375,"val/loss":2.2985626697540282}',1.79532916882598471636e+09,3601884304743553985);
INSERT INTO "report" VALUES('half-0382c659-1',100,'half-0382c659-1.1','{"hidden_norm/layer_0":0.8666563034057617,"learning_rate":0.0005232758703641593,"seconds/compile":0.0,"seconds/evaluate":0.0018675050000638294,"seconds/train":0.012636971999654634,"tokens_per_second":432065.5296339361,"train/accuracy":0.1075,"train/loss":2.340319879055023,"val/accuracy":0.125,"val/loss":2.3357563495635985}',1.79532916891406130795e+09,2802281196918545013);
INSERT INTO "report" VALUES('half-0382c659-1',200,'half-0382c659-1.1','{"hidden_norm/layer_0":0.7056052684783936,"learning_rate":0.0004480303905438632,"seconds/compile":0.0,"seconds/evaluate":0.0057985909998024,"seconds/train":0.016415373000199907,"tokens_per_second":332615.0432240259,"train/accuracy":0.13,"train/loss":2.319150094985962,"val/accuracy":0.0625,"val/loss":2.328912687301636}',1.79532916895041561129e+09,2543887737810316330);
INSERT INTO "report" VALUES('half-0382c659-1',300,'half-0382c659-1.1','{"hidden_norm/layer_0":0.9541482329368591,"learning_rate":0.0003125747316516936,"seconds/compile":0.0,"seconds/evaluate":0.0020168840001133503,"seconds/train":0.025161174000004394,"tokens_per_second":217001.00321229233,"train/accuracy":0.1175,"train/loss":2.3048899745941163,"val/accuracy":0.0875,"val/loss":2.324087047576904}',1.79532916899069976807e+09,2460251635776976459);
INSERT INTO "report" VALUES('half-0382c659-2',100,'half-0382c659-2.1','{"hidden_norm/layer_0":1.2595436573028564,"learning_rate":0.00014006171841174364,"seconds/compile":0.0,"seconds/evaluate":0.002624386999741546,"seconds/train":0.02124051700002383,"tokens_per_second":257055.88992932116,"train/accuracy":0.12,"train/loss":2.3022674036026003,"val/accuracy":0.1,"val/loss":2.305864095687866}',1.79532916906890320776e+09,4208028321914862466);
INSERT INTO "report" VALUES('half-0382c659-2',200,'half-0382c659-2.1','{"hidden_norm/layer_0":1.1981388330459595,"learning_rate":0.00011992127110715955,"seconds/compile":0.0,"seconds/evaluate":0.002729643999828113,"seconds/train":0.01149495100025888,"tokens_per_second":474991.150451797,"train/accuracy":0.115,"train/loss":2.3001346015930175,"val/accuracy":0.1,"val/loss":2.307348442077637}',1.79532916910090398782e+09,144620628114644379);
CREATE TABLE sweep (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	profile TEXT, 
	task TEXT NOT NULL, 
	document TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT, 
	data_source TEXT NOT NULL, 
	data_digest TEXT NOT NULL, 
	facts TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	finished_at FLOAT, 
	row_digest BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "sweep" VALUES('half-0382c659','half',NULL,'listops','{"budget":{"trials":4},"confirm":{"seeds":0},"constraints":{},"data":{"examples":400,"held_out":80,"length":32,"max_length":30,"min_length":5},"evaluate":{"examples":80},"model":{"bidirectional":false,"d_model":4,"d_state":4,"depth":1,"dropout":0.0,"heads":2,"layer":"rotrnn"},"name":"half","objective":{"maximize":["val/accuracy"]},"resources":{"concurrent":1,"cpu":1.0,"gpu":0.0},"sampler":{"tpe":{"constant_liar":true,"group":true,"multivariate":true,"n_ei_candidates":24,"n_startup_trials":10,"seed":0}},"scheduler":{"asha":{"grace":0.5,"reduction":2.0}},"search":{"gamma_init.min":{"uniform":[0.1,0.9]},"learning_rate":{"log_uniform":[0.0001,0.01]}},"task":"listops","training":{"accumulate":1,"batch_size":4,"interval":100,"recurrent_learning_rate":0.001,"rematerialise":false,"steps":600,"warmup":0.1,"weight_decay":0.01},"warm_start":[]}','0382c6594b6fcc8e1301c13e029be0e4cbe59b69afcf50512b7e6cab4c423432','RUNNING',NULL,'ListOps generated by LRA''s rule (seed 0), 400/80/80 expressions of 6 to 29 tokens','70cfb20ac24dbbf4bb01533c6e158aabb662b304577fc476f021488049850359','{"chance":{"test":0.1375,"validation":0.15},"command":"sweep.py half.yaml","comparable":false,"direction":"maximize","examples":{"train":400,"validation":80},"git_commit":"unknown","metric":"val/accuracy","note":"other lengths or sizes than published: accuracy does not compare with papers","sampler_seed":0,"specification":"# A sweep of a few kilobytes: what a ledger written by an earlier version is resumed with.\ntask: listops\ndata: {length: 32, min_length: 5, max_length: 30, examples: 400, held_out: 80}\nmodel: {layer: rotrnn, depth: 1, d_model: 4, d_state: 4, heads: 2}\ntraining: {steps: 600, interval: 100, batch_size: 4, warmup: 0.1, recurrent_learning_rate: 1e-3}\nevaluate: {examples: 80}\nsearch:\n  learning_rate: {log_uniform: [1e-4, 1e-2]}\n  gamma_init.min: {uniform: [0.1, 0.9]}\nobjective: {maximize: val/accuracy}\nsampler: {tpe: {seed: 0}}\nscheduler: {asha: {reduction: 2, grace: 0.5}}\nbudget: {trials: 4}\nresources: {cpu: 1, concurrent: 1}\n","versions":{"flax":"0.12.8","jax":"0.10.2","jaxlib":"0.10.2","mlflow":"3.17.2","numpy":"2.4.6","optax":"0.2.8","optuna":"5.0.0","python":"3.11.7","ray":"2.60.0","sqlalchemy":"2.1.9"}}',1.79532913541687798504e+09,NULL,3984277448686671982);
CREATE TABLE tally (
	sweep_id TEXT NOT NULL, 
	commits BIGINT NOT NULL, 
	rows BIGINT NOT NULL, 
	total BIGINT NOT NULL, 
	PRIMARY KEY (sweep_id), 
	FOREIGN KEY(sweep_id) REFERENCES sweep (id)
);
INSERT INTO "tally" VALUES('half-0382c659',22,45,2580172491344401560);
CREATE TABLE trial (
	"key" TEXT NOT NULL, 
	sweep_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	role TEXT NOT NULL, 
	state TEXT NOT NULL, 
	cause TEXT, 
	params TEXT NOT NULL, 
	system_attrs TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	value FLOAT, 
	best_step BIGINT, 
	step BIGINT NOT NULL, 
	total_steps BIGINT NOT NULL, 
	attempts INTEGER NOT NULL, 
	created_at FLOAT NOT NULL, 
	finished_at FLOAT, 
	row_digest BIGINT NOT NULL, 
	PRIMARY KEY ("key"), 
	FOREIGN KEY(sweep_id) REFERENCES sweep (id)
);
INSERT INTO "trial" VALUES('half-0382c659-0','half-0382c659',0,'search','COMPLETE',NULL,'{"gamma_init.min":0.5284794789018628,"learning_rate":0.0013675077421910968}','{}',1725501518,0.1625,200,600,600,1,1.79532914498493099218e+09,1.79532916884692692752e+09,2386582836651527827);
INSERT INTO "trial" VALUES('half-0382c659-1','half-0382c659',1,'search','PRUNED',NULL,'{"gamma_init.min":0.8785784404183125,"learning_rate":0.0005300686787215008}','{}',1021735874,0.125,100,300,600,1,1.7953291688536930084e+09,1.79532916900203156468e+09,2528798421759728411);
INSERT INTO "trial" VALUES('half-0382c659-2','half-0382c659',2,'search','RUNNING',NULL,'{"gamma_init.min":0.5506512278719247,"learning_rate":0.00014187990379644388}','{}',597998264,NULL,NULL,200,600,1,1.79532916900740528104e+09,NULL,343016745914039646);
CREATE TABLE wish (
	sweep_id TEXT NOT NULL, 
	asker TEXT NOT NULL, 
	PRIMARY KEY (sweep_id)
);
CREATE UNIQUE INDEX trial_of_sweep ON trial (sweep_id, role, number);
CREATE UNIQUE INDEX attempt_of_trial ON attempt (trial_key, number);
CREATE INDEX outbox_pending ON outbox (sweep_id, delivered, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',17);
COMMIT;
